//! What `doctor` thinks of the store at its address: who listens there, whether it is ready, what it complains of.

use super::Check;
use crate::context::Context;
use base::error::{Error, ErrorKind, Result};
use base::net::Net;
use client::{LookAnswer, StatusQuery};

/// Everything about the address and the store there.
pub async fn checks(context: &Context) -> Vec<Check> {
    let at = context.at.clone();
    let looked = look(context).await;
    let checks = match looked {
        Ok((answer, _)) => answered(&answer),
        Err(error) => vec![silent(context, &error).await],
    };
    checks.into_iter().map(|check| check.of(at.clone())).collect()
}

async fn look(context: &Context) -> Result<(LookAnswer, String)> {
    StatusQuery::connect(context.settings("doctor")?).await?.look().await
}

/// Nobody answered: either the port is free, or somebody else has it.
async fn silent(context: &Context, error: &Error) -> Check {
    let name = "store";
    let what = error.text().rsplit_once("; ").map_or(error.text(), |(what, _)| what);
    match error.kind() {
        ErrorKind::Invalid => Check::trouble(name, what, "it is no address", "name one with --at HOST:PORT"),
        ErrorKind::Unreachable => match os::net::TcpNet.listen(&context.at).await {
            Ok(_free) => Check::ok(name, "no store runs there, and the port is free"),
            Err(refused) if refused.kind() == ErrorKind::Busy => {
                let (seen, remedy) = refused.text().rsplit_once("; ").unwrap_or((refused.text(), ""));
                Check::trouble(name, seen, "no store answers there, and none can be started there", remedy)
            }
            // The address is another machine's.
            Err(_) => Check::trouble(
                name,
                what,
                "no command reaches a store there",
                "start it there with `stormwell serve`, or name another with --at HOST:PORT",
            ),
        },
        ErrorKind::Refused => {
            let remedy =
                error.text().rsplit_once("; ").map_or("check --secret-file and --config", |(_, remedy)| remedy);
            Check::trouble(name, what, "a store is there and this program may not use it", remedy)
        }
        _ => Check::trouble(
            name,
            what,
            "what listens there is no Stormwell, or one of another version",
            "use the same version of stormwell for the command and for `stormwell serve`",
        ),
    }
}

/// How it is, and what it complains of.
fn answered(answer: &LookAnswer) -> Vec<Check> {
    let name = "store";
    let console = if answer.console.is_empty() { "off" } else { &answer.console };
    let hdfs = if answer.hdfs.is_empty() { "off" } else { &answer.hdfs };
    let who = format!("version {}, process {}, console {console}, HDFS {hdfs}", answer.version, answer.process);
    let mut checks = vec![if answer.ready {
        Check::ok(name, format!("ready; {who}"))
    } else {
        let means = "it does not take writes now; the reasons follow";
        Check::trouble(name, format!("not ready; {who}"), means, "stormwell device ls")
    }];
    for trouble in &answer.troubles {
        let (what, advice) = trouble.rsplit_once("; ").unwrap_or((trouble, ""));
        let means = if answer.ready { "the store serves nevertheless" } else { "this is why it is not ready" };
        let remedy = if advice.is_empty() {
            "stormwell device ls".to_string()
        } else {
            format!("{advice}: stormwell device ls")
        };
        let make = if answer.ready { Check::warning } else { Check::trouble };
        checks.push(make("reason", what, means, remedy));
    }
    let ours = env!("CARGO_PKG_VERSION");
    if answer.version != ours {
        let means = "a command and a server of other versions may not understand each other";
        checks.push(Check::warning("version", format!("this program is {ours}"), means, "use one version of both"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::answered;
    use client::LookAnswer;

    /// A store that is not ready is in trouble with each of its reasons; one that is ready and complains gets warnings.
    #[test]
    fn reasons() {
        let answer = LookAnswer {
            ready: false,
            troubles: vec!["/d is full; reads and deletes go on".to_string()],
            version: env!("CARGO_PKG_VERSION").to_string(),
            ..LookAnswer::default()
        };
        let states = |answer: &LookAnswer| answered(answer).iter().map(|check| check.state).collect::<Vec<_>>();
        assert_eq!(states(&answer), [State::Trouble, State::Trouble]);
        assert_eq!(states(&LookAnswer { ready: true, ..answer.clone() }), [State::Ok, State::Warning]);
        let other = LookAnswer { ready: true, troubles: Vec::new(), version: "0.0.0".to_string(), ..answer };
        assert_eq!(states(&other), [State::Ok, State::Warning]);
    }
}

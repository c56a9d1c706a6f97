//! Links to whichever of several nodes leads.

use crate::support::{Doing, MemoryNet, Seeded, Serving, link_settings, serve_as};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::moved::Moved;
use base::net::Net;
use net::message::cluster::{Member, Node, View, ViewAnswer};
use net::message::file::Delete;
use net::message::{Ask, Done};
use net::{Call, Credentials, Link, LinkSettings, Payload, Secret};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What a node does with a question.
#[derive(Clone)]
enum Says {
    /// It leads in this term.
    Leads(u64),
    Moved(Option<&'static str>, u64),
    /// The same after so many milliseconds.
    Late(u64, Option<&'static str>, u64),
    /// A refusal of the same kind with any text.
    Text(String),
    /// Names another node, in a higher term each time.
    Rises(&'static str),
    /// Takes it and never answers.
    Silent,
}

/// The terms that are named by those that name a higher one each time.
static RISING: AtomicU64 = AtomicU64::new(1);

/// A change that came: its number, its floor, its path.
type Came = (u64, u64, String);

/// A node whose service does as it is told.
struct Scripted {
    id: u128,
    says: Arc<Mutex<Says>>,
    came: Arc<Mutex<Vec<Came>>>,
    serving: Serving,
}

fn moved(leader: Option<&str>, term: u64) -> Error {
    Moved { leader: leader.map(str::to_string), term }.into()
}

fn view(id: u128, address: &str, term: u64) -> ViewAnswer {
    let node = Node { node: id.into(), address: address.to_string(), ..Node::default() };
    let members = vec![Member { node, devices: Vec::new(), silent: false, keeping: String::new() }];
    ViewAnswer { epoch: 1, keeper: id.into(), members, keepers: vec![id.into()], term }
}

impl Scripted {
    async fn start(net: &MemoryNet, address: &'static str, id: u128, says: Says) -> Scripted {
        let (says, came) = (Arc::new(Mutex::new(says)), Arc::<Mutex<Vec<Came>>>::default());
        let (script, noting, held) = (says.clone(), came.clone(), Mutex::<Vec<Call>>::default());
        let service = Doing(move |mut call: Call| {
            let says = script.lock().unwrap().clone();
            let is_view = call.kind == View::KIND;
            if !is_view {
                let path = call.ask::<Delete>().unwrap().path;
                noting.lock().unwrap().push((call.number, call.floor, path));
            }
            match says {
                Says::Leads(term) if is_view => call.respond.answer(view(id, address, term), Payload::empty()),
                Says::Leads(_) => call.respond.answer(Done {}, Payload::empty()),
                Says::Moved(leader, term) => call.respond.fail(moved(leader, term)),
                Says::Late(wait, leader, term) => drop(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    call.respond.fail(moved(leader, term));
                })),
                Says::Text(text) => call.respond.fail(Error::new(ErrorKind::Moved, text)),
                // A link that asks without a pause is stopped here: the clock stands still for it.
                Says::Rises(_) if noting.lock().unwrap().len() > 1000 => held.lock().unwrap().push(call),
                Says::Rises(leader) => {
                    let term = RISING.fetch_add(1, Ordering::Relaxed);
                    call.respond.fail(moved(Some(leader), term));
                }
                Says::Silent => held.lock().unwrap().push(call),
            }
        });
        let serving = serve_as(net, address, 0, Arc::new(service), |settings| settings.node = NodeId(id)).await;
        Scripted { id, says, came, serving }
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }

    fn asked(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    async fn kill(self) {
        self.serving.task.abort();
        assert!(self.serving.task.await.unwrap_err().is_cancelled());
    }
}

/// Nodes a, b and c, and a link to the leader that knows them in this order.
async fn three(says: [Says; 3]) -> (Arc<MemoryNet>, [Scripted; 3], Link) {
    let net = Arc::new(MemoryNet::default());
    let [a, b, c] = says;
    let nodes = [
        Scripted::start(&net, "a", 11, a).await,
        Scripted::start(&net, "b", 12, b).await,
        Scripted::start(&net, "c", 13, c).await,
    ];
    let link = to_leader(&net, &["a", "b", "c"], link_settings(1, 1));
    (net, nodes, link)
}

fn to_leader(net: &Arc<MemoryNet>, addresses: &[&str], settings: LinkSettings) -> Link {
    Link::to_leader(net.clone(), addresses.iter().map(|address| (*address).to_string()).collect(), settings)
}

async fn delete(link: &Link, path: &str) -> Result<()> {
    let delete = Delete { path: path.to_string(), ..Delete::default() };
    link.call(&delete, Payload::empty()).await.map(drop)
}

/// A change that is asked in a task of its own.
fn deleting(link: &Link, path: &str) -> tokio::task::JoinHandle<Result<()>> {
    let (link, path) = (link.clone(), path.to_string());
    tokio::spawn(async move { delete(&link, &path).await })
}

async fn until(is: impl Fn() -> bool) {
    let come = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), come).await.expect("it comes");
}

/// The leader that a node names is asked at once, under the same number, and goes on being asked.
#[tokio::test(start_paused = true)]
async fn the_named_leader_is_asked() {
    let (_net, [a, b, c], link) = three([Says::Moved(Some("c"), 6), Says::Silent, Says::Leads(6)]).await;
    let began = Instant::now();
    delete(&link, "x").await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    delete(&link, "y").await.unwrap();
    assert_eq!(a.came(), [(1, 1, "x".to_string())]);
    assert_eq!(c.came(), [(1, 1, "x".to_string()), (2, 2, "y".to_string())]);
    assert_eq!((b.asked(), link.node()), (0, NodeId(c.id)));
}

/// One that knows nobody in a term is followed by one that names the leader of that term: nobody was followed in it.
#[tokio::test(start_paused = true)]
async fn the_same_term_is_followed_once() {
    let (_net, [a, b, c], link) = three([Says::Moved(None, 6), Says::Moved(Some("d"), 6), Says::Silent]).await;
    let d = Scripted::start(&_net, "d", 14, Says::Leads(6)).await;
    delete(&link, "x").await.unwrap();
    assert_eq!((a.asked(), b.asked(), c.asked(), d.asked()), (1, 1, 0, 1));
}

/// All that has no answer is asked of the next leader, each call under the number and the floor that it has.
#[tokio::test(start_paused = true)]
async fn numbers_and_floors_stay() {
    let (_net, [a, b, c], link) = three([Says::Silent, Says::Silent, Says::Leads(9)]).await;
    let calls = [deleting(&link, "0"), deleting(&link, "1")];
    until(|| a.asked() == 2).await;
    a.say(Says::Moved(Some("c"), 9));
    delete(&link, "2").await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let came: Vec<Came> = (0..3).map(|at| (at + 1, 1, at.to_string())).collect();
    assert_eq!((a.came(), c.came(), b.asked()), (came.clone(), came, 0));
}

/// Two that name each other, in one term or in a higher one each time, are asked now and then, and what is asked fails in the end, not with
/// their words.
#[tokio::test(start_paused = true)]
async fn two_that_name_each_other() {
    for says in [
        [Says::Moved(Some("b"), 5), Says::Moved(Some("a"), 5)],
        [Says::Rises("b"), Says::Rises("a")],
        [Says::Moved(Some("a"), 0), Says::Moved(Some("b"), 0)],
        [Says::Late(450, Some("b"), 5), Says::Late(450, Some("a"), 5)],
    ] {
        let [one, other] = says;
        let (_net, [a, b, _c], link) = three([one, other, Says::Moved(None, 5)]).await;
        let began = Instant::now();
        let error = delete(&link, "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.text().contains("whether it was done is not known"), "{error}");
        let waited = began.elapsed();
        assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&waited), "{waited:?}");
        // A pause of a quarter of a second at least, once it has been doubled.
        assert!(a.asked() + b.asked() < 60, "{} and {}", a.asked(), b.asked());
    }
}

/// While nobody leads all are asked after short pauses, and the first that leads answers.
#[tokio::test(start_paused = true)]
async fn nobody_leads_then_somebody_does() {
    let (_net, [a, b, c], link) = three([Says::Moved(None, 5), Says::Moved(None, 5), Says::Moved(None, 5)]).await;
    let call = deleting(&link, "x");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = a.asked() + b.asked() + c.asked();
    assert!((10..25).contains(&asked), "{asked}");
    c.say(Says::Leads(6));
    let began = Instant::now();
    call.await.unwrap().unwrap();
    assert!(began.elapsed() <= Duration::from_millis(350), "{:?}", began.elapsed());
}

/// A leader that takes calls and answers none is left when another one leads in a higher term, long before it counts as silent. Who is asked
/// about it may be silent, too: then the next one is asked.
#[tokio::test(start_paused = true)]
async fn a_leader_falls_silent() {
    for then in [Says::Moved(Some("c"), 6), Says::Silent] {
        let (_net, [a, b, c], link) =
            three([Says::Leads(5), Says::Moved(Some("a"), 5), Says::Moved(Some("a"), 5)]).await;
        delete(&link, "x").await.unwrap();
        a.say(Says::Silent);
        let call = deleting(&link, "y");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!call.is_finished() && a.asked() == 2, "nobody else leads");
        b.say(then);
        c.say(Says::Leads(6));
        let began = Instant::now();
        call.await.unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!(c.came(), [(2, 2, "y".to_string())]);
    }
}

/// A leader that works for long on a call and lives is not given up, nor asked again.
#[tokio::test(start_paused = true)]
async fn long_work_of_a_leader() {
    let (net, [a, b, c], _) = three([Says::Leads(5), Says::Moved(Some("a"), 5), Says::Moved(Some("b"), 4)]).await;
    let link = to_leader(&net, &["b", "a", "c"], link_settings(1, 1));
    delete(&link, "x").await.unwrap();
    // Others are asked meanwhile, and what they say of this term or an earlier one is no reason to leave.
    b.say(Says::Moved(Some("c"), 5));
    a.say(Says::Silent);
    let call = deleting(&link, "y");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!call.is_finished());
    a.say(Says::Leads(5));
    delete(&link, "z").await.unwrap();
    assert_eq!((a.asked(), b.asked(), c.asked()), (3, 1, 0));
    call.abort();
}

/// A leader that works on the first call that it is asked answers pings: when it dies after more than the silence that is borne, the call
/// goes to the next one.
#[tokio::test(start_paused = true)]
async fn the_leader_dies_over_its_first_call() {
    let (_net, [a, b, c], link) = three([Says::Silent, Says::Moved(None, 5), Says::Moved(None, 5)]).await;
    let call = deleting(&link, "x");
    tokio::time::sleep(Duration::from_secs(30)).await;
    a.kill().await;
    c.say(Says::Leads(6));
    call.await.unwrap().unwrap();
    assert_eq!((b.asked() < 3, c.asked()), (true, 1));
}

/// The leader dies: what it had not answered is asked of the next one, and answered calls are not.
#[tokio::test(start_paused = true)]
async fn the_leader_dies() {
    let (_net, [a, b, c], link) = three([Says::Leads(5), Says::Moved(None, 5), Says::Moved(None, 5)]).await;
    delete(&link, "x").await.unwrap();
    a.say(Says::Silent);
    let calls = [deleting(&link, "y"), deleting(&link, "z")];
    until(|| a.asked() == 3).await;
    a.kill().await;
    until(|| b.asked() > 1).await;
    b.say(Says::Moved(Some("c"), 6));
    c.say(Says::Leads(6));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let came: Vec<Came> = c.came().into_iter().rev().take(2).rev().collect();
    assert_eq!(came, [(2, 2, "y".to_string()), (3, 2, "z".to_string())]);
}

/// Addresses at which nobody is are passed over at once, and one that takes connections and says nothing after a moment.
#[tokio::test(start_paused = true)]
async fn dead_addresses_are_passed_over() {
    let net = Arc::new(MemoryNet::default());
    let _c = Scripted::start(&net, "c", 13, Says::Leads(6)).await;
    let began = Instant::now();
    delete(&to_leader(&net, &["a", "b", "c"], link_settings(1, 2)), "x").await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    let _mute = net.listen("mute").await.unwrap();
    delete(&to_leader(&net, &["mute", "c"], link_settings(2, 2)), "x").await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    // One whose secret nobody there has is told so.
    let credentials = Credentials { cluster: None, secret: Some(Secret::from_hex(&"5a".repeat(32)).unwrap()) };
    let stranger = to_leader(&net, &["c"], LinkSettings { credentials, ..link_settings(4, 1) });
    assert_eq!(delete(&stranger, "x").await.unwrap_err().kind(), ErrorKind::Refused);
    let link = to_leader(&net, &["a"], link_settings(3, 1));
    let call = deleting(&link, "x");
    link.learn(vec!["c".to_string()]);
    call.await.unwrap().unwrap();
}

/// Nobody is there: what is asked fails after the silence, and says where it was tried.
#[tokio::test(start_paused = true)]
async fn all_are_gone() {
    let (_net, [a, b, c], link) = three([Says::Leads(5), Says::Moved(None, 5), Says::Moved(None, 5)]).await;
    delete(&link, "x").await.unwrap();
    for node in [a, b, c] {
        node.kill().await;
    }
    let began = Instant::now();
    let error = delete(&link, "y").await.unwrap_err();
    let waited = began.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&waited), "{waited:?}");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    for part in ["for 10 s: 3 of 3 addresses were tried", "is not known", "stormwell serve"] {
        assert!(error.text().contains(part), "{error}");
    }
}

/// A link that sends once does not send on: what a node that does not lead was sent fails, and what is asked next goes to the leader.
#[tokio::test(start_paused = true)]
async fn once_to_the_leader() {
    let (net, [a, _b, c], _) = three([Says::Moved(Some("c"), 6), Says::Silent, Says::Leads(6)]).await;
    let link = to_leader(&net, &["a", "b", "c"], LinkSettings { once: true, ..link_settings(1, 1) });
    let error = delete(&link, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    delete(&link, "y").await.unwrap();
    assert_eq!((a.asked(), c.asked()), (1, 1));
}

/// On a link to one node these words settle a call as any refusal does.
#[tokio::test(start_paused = true)]
async fn a_link_to_one_node_does_not_follow() {
    let (net, [a, _b, c], _) = three([Says::Moved(Some("c"), 6), Says::Silent, Says::Leads(6)]).await;
    let link = Link::connect(net, "a", link_settings(1, 1)).await.unwrap();
    let error = delete(&link, "x").await.unwrap_err();
    assert_eq!(Moved::read(&error), Some(Moved { leader: Some("c".to_string()), term: 6 }));
    assert_eq!((a.asked(), c.asked()), (1, 0));
}

/// Whatever the text is, such a refusal settles nothing, and addresses that are none do no harm.
#[tokio::test(start_paused = true)]
async fn fuzz_moved() {
    let (_net, [a, b, c], link) = three([Says::Silent, Says::Silent, Says::Leads(0)]).await;
    for seed in sim::fuzz::seeds(300) {
        let random = Seeded::new(seed);
        let mut text = moved(Some("b"), seed % 7).text().to_string().into_bytes();
        for _ in 0..random.next() % 4 {
            let at = random.next() as usize % text.len();
            match random.next() % 4 {
                0 => text[at] = random.next() as u8,
                1 => drop(text.drain(at..)),
                2 => drop(text.splice(at..at, vec![b'9'; random.next() as usize % 3000])),
                _ => drop(text.splice(at..at, *b", and the one that leads listens at ")),
            }
            text.push(b';');
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        a.say(Says::Text(text.clone()));
        b.say(Says::Text(text));
        delete(&link, "x").await.unwrap();
        // The next one begins elsewhere.
        c.say(Says::Moved(Some("a"), 1000 + seed));
        let call = deleting(&link, "y");
        until(|| c.asked() > 1).await;
        c.say(Says::Leads(0));
        call.await.unwrap().unwrap();
        c.came.lock().unwrap().clear();
    }
}

/// The lead goes around while many calls of many clones are under way on two connections: each is answered, and has one number wherever it
/// came.
#[tokio::test(start_paused = true)]
async fn many_calls_while_the_lead_goes_around() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let (net, nodes, _) = three([Says::Leads(1), Says::Moved(None, 1), Says::Moved(None, 1)]).await;
    let link = to_leader(&net, &["a", "b", "c"], link_settings(1, 2));
    let mut calls = JoinSet::new();
    for client in 0..8 {
        let link = link.clone();
        calls.spawn(async move {
            for number in 0..60 {
                delete(&link, &format!("{client}/{number}")).await.unwrap();
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
        });
    }
    let mut turns = 1;
    while !calls.is_empty() {
        tokio::select! {
            biased;
            ended = calls.join_next() => ended.unwrap().unwrap(),
            () = tokio::time::sleep(Duration::from_millis(40)) => {
                turns += 1;
                let leads = turns % 3;
                for (at, node) in nodes.iter().enumerate() {
                    let knows = if turns % 2 == 0 { Some(NAMES[leads]) } else { None };
                    node.say(if at == leads { Says::Leads(turns as u64) } else { Says::Moved(knows, turns as u64) });
                }
            }
        }
    }
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    for (number, floor, path) in nodes.iter().flat_map(Scripted::came) {
        assert!(floor <= number, "{path}");
        assert_eq!(*numbers.entry(path).or_insert(number), number);
    }
    assert_eq!(numbers.len(), 8 * 60);
    let distinct: std::collections::BTreeSet<u64> = numbers.values().copied().collect();
    assert_eq!(distinct.len(), numbers.len());
}

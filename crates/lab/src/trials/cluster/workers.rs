//! The workers of a cluster's trial: each goes on after an operation whose fate is open, once it has looked at what became of it.

use crate::trials::check;
use crate::trials::load::{Phase, Worker};
use crate::trials::report::{Finding, Found, Kind};
use client::Client;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Operations that were begun before the end have ended after so long: an unanswered push has the longest patience, a minute.
const FINISH_WAIT: Duration = Duration::from_secs(150);

/// Between two attempts to look.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// All workers, at work, and the word to them.
pub struct AtWork {
    tasks: JoinSet<(Worker, Found<()>)>,
    phase: watch::Sender<Phase>,
}

impl AtWork {
    /// Sets the workers to work, each with the next of the clients. Until they are told otherwise, an error is a finding.
    pub fn begin(workers: Vec<Worker>, clients: &[Client]) -> AtWork {
        let (phase, told) = watch::channel(Phase::Load);
        let mut tasks = JoinSet::new();
        for (worker, client) in workers.into_iter().zip(clients.iter().cycle()) {
            tasks.spawn(work(worker, client.clone(), told.clone()));
        }
        AtWork { tasks, phase }
    }

    /// From here on errors say nothing.
    pub fn is_struck(&self) {
        self.phase.send_replace(Phase::Killed);
    }

    /// Waits so long; ends early if a worker has found something.
    pub async fn wait(&mut self, length: Duration) -> Found<()> {
        match tokio::time::timeout(length, self.tasks.join_next()).await {
            Err(_) => Ok(()),
            Ok(Some(Ok((_, Err(finding))))) => Err(finding),
            Ok(Some(Err(error))) => Err(Finding::new(Kind::Trouble, error.to_string())),
            Ok(_) => unreachable!("workers work until they are told to end"),
        }
    }

    /// Lets every worker finish what it began.
    pub async fn end(mut self) -> Found<Vec<Worker>> {
        self.phase.send_replace(Phase::Enough);
        let mut workers = Vec::new();
        let finish = async {
            while let Some(joined) = self.tasks.join_next().await {
                let (worker, result) = joined.map_err(|error| Finding::new(Kind::Trouble, error.to_string()))?;
                result?;
                workers.push(worker);
            }
            Ok(())
        };
        let finished: Found<()> = match tokio::time::timeout(FINISH_WAIT, finish).await {
            Ok(finished) => finished,
            Err(_) => {
                let text = format!("with everything mended an operation is not over after {} s", FINISH_WAIT.as_secs());
                Err(Finding::new(Kind::Trouble, text))
            }
        };
        finished?;
        workers.sort_by(|a, b| a.root.cmp(&b.root));
        Ok(workers)
    }
}

async fn work(mut worker: Worker, client: Client, phase: watch::Receiver<Phase>) -> (Worker, Found<()>) {
    loop {
        let result;
        (worker, result) = worker.run(client.clone(), phase.clone()).await;
        if result.is_err() || is_over(&phase) {
            return (worker, result);
        }
        // The fate of an operation is open: it goes on from what is there.
        while !is_over(&phase) {
            match look(&mut worker, &client).await {
                Ok(()) => break,
                Err(finding) if finding.kind == Kind::Trouble => tokio::time::sleep(LOOK_PAUSE).await,
                Err(finding) => return (worker, Err(finding)),
            }
        }
    }
}

fn is_over(phase: &watch::Receiver<Phase>) -> bool {
    matches!(*phase.borrow(), Phase::Enough)
}

/// Compares a worker's files with what must be there, while bytes that it sent may still be on their way.
pub async fn look(worker: &mut Worker, client: &Client) -> Found<()> {
    let sent = worker.model.all_sent();
    check::check_files(worker, client).await?;
    worker.model.may_grow(&sent);
    Ok(())
}

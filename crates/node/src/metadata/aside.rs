//! What is done away from the thread that answers, because it takes milliseconds or tens of them: layers are merged into the tree and freed, pages of
//! copies of the tree are read and written.

use super::kept::Files;
use super::{Item, Metadata};
use meta::{CopyJob, Frozen, MergeJob, PageJob};
use std::sync::Arc;
use tokio::sync::mpsc;

/// For the thread that merges.
pub(super) enum Aside {
    Merge(MergeJob),
    /// A layer that was merged.
    Free(Arc<Frozen>),
}

/// For the thread that copies, which a merge must not wait for: the log's room does.
pub(super) enum Copying {
    /// A page for another keeper.
    Page(PageJob),
    /// A page of another keeper's tree.
    Write(CopyJob),
}

/// Pages that wait at the most. Each of the others asks for one or two at a time; a page that finds no room is asked for again.
const PAGES_MAX: usize = 15;

/// Freed layers of so many changes, some tens of megabytes, leave the allocator with memory that nobody else will want.
const MANY_CHANGES: usize = 200_000;

/// Merges and frees layers.
pub(super) async fn merge(mut jobs: mpsc::Receiver<Aside>, metadata: Arc<Metadata>) {
    while let Some(job) = jobs.recv().await {
        match job {
            Aside::Merge(job) => metadata.send(Item::Merged(job.run())),
            Aside::Free(frozen) => {
                // A log that waits for room waits for the merge.
                if let Ok(Aside::Merge(job)) = jobs.try_recv() {
                    metadata.send(Item::Merged(job.run()));
                }
                let many = frozen.overlay.len() >= MANY_CHANGES;
                drop(frozen);
                if many {
                    os::process::give_back_memory();
                }
            }
        }
    }
}

pub(super) fn hand_over(jobs: &mpsc::Sender<Aside>, job: Aside) {
    if jobs.try_send(job).is_err() {
        unreachable!(
            "the merging task has one layer to merge and one to free at the most, and lives as long as this one"
        );
    }
}

/// Where copies are worked on: `PAGES_MAX` pages, and the one page that a keeper writes at a time.
pub(super) fn copying() -> (mpsc::Sender<Copying>, mpsc::Receiver<Copying>) {
    mpsc::channel(PAGES_MAX + 1)
}

/// Whether it was taken. A page to be written is.
pub(super) fn copies(jobs: &mpsc::Sender<Copying>, job: Copying) -> bool {
    if matches!(job, Copying::Page(_)) && jobs.capacity() <= 1 {
        return false;
    }
    if jobs.try_send(job).is_err() {
        unreachable!("one page is written at a time, and the copying task lives as long as this one");
    }
    true
}

/// Reads and writes pages.
pub(super) async fn copy(mut jobs: mpsc::Receiver<Copying>, metadata: Arc<Metadata>, files: Files) {
    while let Some(job) = jobs.recv().await {
        match job {
            Copying::Page(job) => metadata.send(Item::Paged(job.run())),
            Copying::Write(job) => metadata.send(Item::Copied(job.run(|| files.copy()))),
        }
    }
}

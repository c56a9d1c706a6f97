//! Threads that disks may keep: as many as there are, here.

pub(crate) struct Loans;

pub(crate) struct Loan;

impl Loans {
    pub(crate) fn begin(&self) -> Option<Loan> {
        Some(Loan)
    }
}

impl Loan {
    pub(crate) fn begins(&self) {}
}

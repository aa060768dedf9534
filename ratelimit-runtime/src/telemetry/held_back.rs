//! Reports that arise under a lock, and are made when it is free: recorders and subscribers are foreign code, may call the
//! limiter, and may panic.

use std::{cell::RefCell, thread};

type Reports = Vec<Box<dyn FnOnce()>>;

thread_local! {
    /// The reports that wait, while some are held back.
    static WAITING: RefCell<Option<Reports>> = const { RefCell::new(None) };
}

/// Makes the reports that wait, also after a panic of the work.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let waiting = WAITING.take().unwrap_or_default();
        // A second panic would end the process.
        if !thread::panicking() {
            for report in waiting {
                report();
            }
        }
    }
}

/// Does work that takes locks. The reports that arise in it are made afterwards.
pub(crate) fn reports_later(work: impl FnOnce()) {
    // Within such work the outer one makes them.
    if WAITING.with_borrow(Option::is_some) {
        return work();
    }
    let _end = End;
    WAITING.set(Some(Vec::new()));
    work();
}

/// Makes a report, now or once no lock is held.
pub(crate) fn report(report: impl FnOnce() + 'static) {
    let now = WAITING.with_borrow_mut(|waiting| match waiting {
        Some(waiting) => {
            waiting.push(Box::new(report));
            None
        }
        None => Some(report),
    });
    if let Some(report) = now {
        report();
    }
}

//! Reports that arise under a lock, and are made when it is free: recorders and subscribers are
//! foreign code, may call the limiter, and may panic.

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
    // Within such work the outer one makes them. A thread that is ending holds none back any more.
    if WAITING.try_with(|waiting| waiting.borrow().is_some()).unwrap_or(true) {
        return work();
    }
    let _end = End;
    WAITING.set(Some(Vec::new()));
    work();
}

/// Makes a report, now or once no lock is held.
pub(crate) fn report(report: impl FnOnce() + 'static) {
    let mut now = Some(report);
    let _ = WAITING.try_with(|waiting| {
        if let Some(waiting) = &mut *waiting.borrow_mut()
            && let Some(later) = now.take()
        {
            waiting.push(Box::new(later));
        }
    });
    if let Some(report) = now {
        report();
    }
}

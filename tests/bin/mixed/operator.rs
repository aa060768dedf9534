//! The operator of a process, who changes limits by the plan of the round.

use std::time::{Duration, SystemTime};

use harness::{
    mixed::{CREDIT, LIMITS, MIXED_CALLER, Note, OfCaller},
    wall_clock,
};
use ratelimit_runtime::{Enforcement, Override, overrides::Place};
use tokio::time::sleep;

use crate::{
    caller::{Caller, note},
    plan::Act,
};

/// Returns the override of a limit that is not scaled with all others.
pub(crate) fn unscaled() -> Override {
    Override::new().scale(1.0)
}

impl Caller {
    /// Changes limits by the plan. One that starts late makes up for the last change.
    pub(crate) async fn operate(self) {
        let overrides = self.limiter.overrides();
        for &(at, limit, act) in &self.plan.acts {
            let until = (self.from + at).saturating_sub(wall_clock());
            sleep(Duration::from_micros(until)).await;
            let (name, from) = (LIMITS[limit].name, wall_clock());
            let number = |number: u32| match LIMITS[limit].threshold {
                0 => Override::new().concurrency(number),
                _ => Override::new().threshold(number),
            };
            let own = |what: Override| if limit == CREDIT { what.scale(1.0) } else { what };
            match act {
                Act::Number(to) => {
                    // The second of two windows, of which the first has passed. The time of Redis is as old here
                    // as its answer was late.
                    let begun = SystemTime::now() - Duration::from_secs(60);
                    let windows = vec![own(number(1)).until(begun), own(number(to)).from(begun)];
                    overrides.here().set(name, windows).expect("valid numbers");
                    note(0, Note::Overrides(limit, to.into(), from));
                }
                Act::Slow => {
                    let slow = own(Override::new().period(2 * LIMITS[limit].period));
                    overrides.here().set(name, slow).expect("a valid period");
                    note(0, Note::Slows(limit, from));
                }
                Act::Off => {
                    let off = own(Override::new().enforcement(Enforcement::Off));
                    overrides.here().set(name, off).expect("a valid override");
                    note(0, Note::Off(limit, from));
                }
                Act::Share(percent) => {
                    let share = own(Override::new().enforce(percent));
                    overrides.here().set(name, share).expect("a valid share");
                    note(0, Note::Share(limit, percent, from));
                }
                Act::Scale(0) => {
                    overrides.here().remove(Place::all());
                    note(0, Note::Scales(1_000, from));
                }
                Act::Scale(factor) => {
                    let scale = Override::new().scale(f64::from(factor) / 1e3);
                    overrides.here().set(Place::all(), scale).expect("a valid factor");
                    note(0, Note::Scales(factor.into(), from));
                }
                Act::Back => {
                    if limit == CREDIT {
                        overrides.here().set(name, unscaled()).expect("a valid factor");
                    } else {
                        overrides.here().remove(name);
                    }
                    note(0, Note::Overrides(limit, 0, from));
                }
                Act::OfCaller(what, until) => {
                    let until = if until == 0 { 0 } else { self.from + until };
                    let of_caller = match what {
                        OfCaller::Number(to) => number(to.try_into().expect("a small number")),
                        OfCaller::Off => Override::new().enforcement(Enforcement::Off),
                        OfCaller::Denied => Override::new().deny(),
                        OfCaller::Removed => Override::new(),
                    };
                    if what == OfCaller::Removed {
                        overrides.here().remove((name, MIXED_CALLER));
                    } else {
                        let ends = SystemTime::UNIX_EPOCH + Duration::from_micros(until);
                        // A process that stood still may set it when it has ended.
                        let begun = SystemTime::now().min(ends) - Duration::from_millis(50);
                        let of_caller = if until == 0 {
                            of_caller
                        } else {
                            let whole = of_caller.clone().from(begun).until(ends);
                            vec![of_caller.until(begun), whole].into()
                        };
                        let set = overrides.here().set((name, MIXED_CALLER), of_caller);
                        set.expect("a valid override");
                    }
                    note(0, Note::OfCaller(limit, what, until, from));
                }
                Act::Reset(number) if number == self.number && until > 0 => {
                    // Also one without an answer may have reset the limit.
                    note(0, Note::Resets(limit, from));
                    let _ = self.limiter.reset(&LIMITS[limit].policy(), MIXED_CALLER).await;
                    note(0, Note::Reset(limit, from));
                }
                Act::Pause(number, length) if number == self.number && until > 0 => {
                    // Also one without an answer may be in force.
                    note(0, Note::Pauses(limit, length, from));
                    let (policy, time) = (LIMITS[limit].policy(), Duration::from_micros(length));
                    if self.limiter.pause(&policy, MIXED_CALLER, time).await.is_ok() {
                        note(0, Note::Paused(limit, length, from));
                    }
                }
                Act::Reset(_) | Act::Pause(..) => {}
            }
        }
    }
}

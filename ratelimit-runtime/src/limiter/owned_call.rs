//! A call without its limiter, as the queues of that limiter own it, and its options.

use std::time::Duration;

use crate::{
    caller::Caller,
    overrides::Enforcement,
    policy::Policy,
    request::{OnStoreError, Op},
    telemetry::LimitCounters,
    time::LONGEST,
};

/// A call that outlives the expression which made it.
pub(crate) struct OwnedCall {
    pub(crate) policy: Policy,
    pub(crate) caller: Caller,
    /// On the heap: only layers set it.
    pub(crate) observed_as: Option<Box<Caller>>,
    pub(crate) counters: Option<&'static LimitCounters>,
    pub(crate) options: Options,
}

/// The author of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A check by hand, or of a layer.
    Check,
    /// One of several such checks.
    JointCheck,
    /// An annotated function.
    Function,
    /// One of several limits of an annotated function.
    JointFunction,
}

impl CallKind {
    /// Returns `true` if the call is one of several that are decided together: it warns once all
    /// are admitted.
    pub(super) fn is_joint(self) -> bool {
        matches!(self, Self::JointCheck | Self::JointFunction)
    }

    /// Returns `true` if the call's permit goes to the response that the function ends with.
    pub(super) fn is_function(self) -> bool {
        matches!(self, Self::Function | Self::JointFunction)
    }
}

/// The options of a check that are plain values. Generated code sets them by the methods.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    /// The share of each tier that is left after the call, in percent.
    pub(crate) leave: u8,
    /// The used share of the quota at which the limiter warns, in percent; 0 for none.
    pub(crate) warn_at: u8,
    /// A peek reports what a take would get, whatever the enforcement.
    pub(crate) op: Op,
    pub(crate) max_wait: Duration,
    /// The limiter's own setting if `None`.
    pub(crate) on_store_error: Option<OnStoreError>,
    /// The enforcement that the source code declares.
    pub(crate) declared: Enforcement,
    /// `true` if the compiler has validated the policy and the cost.
    pub(crate) is_validated: bool,
    pub(crate) kind: CallKind,
    /// `true` if the key is the same for all clients.
    pub(crate) is_shared: bool,
    /// `true` if nothing but a cost and an id is set: units are taken at once, and the declared
    /// enforcement refuses.
    pub(super) has_only_units: bool,
}

impl Options {
    /// Sets the declared enforcement.
    #[inline]
    pub(crate) fn declare(&mut self, declared: Enforcement) {
        self.declared = declared;
        self.has_only_units &= declared == Enforcement::On;
    }

    /// Sets the units that the call takes.
    pub fn cost(&mut self, cost: u32) {
        self.cost = cost;
        self.is_validated = false;
    }

    /// Sets the hash of the id under which the call is charged once.
    pub fn request_id(&mut self, hash: u64) {
        self.id = Some(hash);
    }

    /// Sets the share that the call leaves, in percent.
    pub fn leave(&mut self, percent: u32) {
        // A share of 100 is refused like a larger one, and `units_left` takes no more.
        self.leave = u8::try_from(percent).map_or(100, |percent| percent.min(100));
        self.has_only_units &= percent == 0;
        self.is_validated = false;
    }

    /// Sets the used share of the quota at which the limiter warns, in percent.
    pub fn warn_at(&mut self, percent: u32) {
        self.warn_at = u8::try_from(percent).unwrap_or(u8::MAX);
        self.has_only_units &= percent == 0;
        self.is_validated = false;
    }

    /// Marks the key as one that is the same for all clients.
    pub fn shared(&mut self) {
        self.is_shared = true;
    }

    /// Marks the policy as one that no compiler has validated.
    pub fn unvalidated(&mut self) {
        self.is_validated = false;
    }

    /// Sets how long the call waits for room.
    pub fn max_wait(&mut self, max_wait: Duration) {
        // The end of the wait is a sum with the time of arrival, which must not overflow.
        self.max_wait = max_wait.min(LONGEST);
        self.has_only_units = false;
    }

    /// Sets the answer if the store cannot decide.
    pub fn on_store_error(&mut self, on_store_error: OnStoreError) {
        self.on_store_error = Some(on_store_error);
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cost: 1,
            id: None,
            op: Op::Take,
            max_wait: Duration::ZERO,
            leave: 0,
            warn_at: 0,
            on_store_error: None,
            declared: Enforcement::On,
            is_validated: false,
            kind: CallKind::Check,
            is_shared: false,
            has_only_units: true,
        }
    }
}

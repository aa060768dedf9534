//! The validation of a policy, alone and for one call.

use ratelimit_core::{
    MAX_TIERS, PolicyFault,
    rules::{self, Draft, Setting, TierDraft},
};

use super::{Flags, InvalidPolicy, Policy, StateKind, Tier, TooLarge};
use crate::time::Micros;

impl Policy {
    /// Validates the policy.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] if:
    ///
    /// - there are more than [`MAX_TIERS`] tiers,
    /// - a period is shorter than 1 ms or longer than 366 days,
    /// - a threshold or a burst is 0,
    /// - a threshold is over 1 000 000 000 for
    ///   [`Algorithm::SlidingWindow`](crate::Algorithm::SlidingWindow),
    /// - a burst is set for another algorithm than
    ///   [`Algorithm::TokenBucket`](crate::Algorithm::TokenBucket), or with several tiers,
    /// - a bucket is too large to be counted exactly at its rate,
    /// - refused calls are recorded in an
    ///   [`Algorithm::FixedWindow`](crate::Algorithm::FixedWindow),
    /// - a tier can never refuse, because another one always refuses first,
    /// - the calls in flight are 0, or their timeout is out of range or without them,
    /// - a burst is set, or refused calls are recorded, without a window,
    /// - a [lease](Self::lease) is shorter than 1 ms or longer than a tenth of the shortest period,
    ///   or is without a window, or together with recorded refusals or calls in flight,
    /// - a bucket holds no token under its lease,
    /// - a [`calendar_window`](Self::calendar_window) has another period than a unit of the
    ///   calendar, several tiers, recorded refusals, a lease or an unknown zone, or the program
    ///   lacks the feature `calendar`,
    /// - a zone is set for another algorithm,
    /// - the lengths of a [block](Self::block) are out of range, too many or do not grow, or there
    ///   is no window or a lease.
    ///
    /// A check under a threshold, a burst or a `concurrency` of 0 fails with [`TooLarge`] instead:
    /// a plan may have no calls.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.validate_with(None)
    }

    /// Validates the policy together with the cost of each call.
    pub(crate) fn validate_with(&self, cost: Option<u32>) -> Result<(), InvalidPolicy> {
        self.invalid_by(self.faults(cost, 0).first().copied())
    }

    /// Validates all but the rules by which the policy can never admit a call.
    pub(crate) fn validate_shape(&self) -> Result<(), InvalidPolicy> {
        self.invalid_by(self.faults(None, 0).into_iter().find(|fault| !fault.can_never_admit()))
    }

    /// Validates the policy for a call of this cost that leaves this share, in percent:
    /// `Ok(Err(..))` if it never admits such a call.
    ///
    /// # Errors
    ///
    /// `InvalidPolicy` if the policy breaks a rule.
    pub(crate) fn validate_call(
        &self,
        cost: u32,
        share: u8,
    ) -> Result<Result<(), TooLarge>, InvalidPolicy> {
        if share == 0
            && self.is_surely_valid(cost)
            && (!self.is_calendar() || self.calendar_fault().is_none())
        {
            return Ok(Ok(()));
        }
        let faults = self.faults((cost > 0).then_some(cost), share);
        if let Some(fault) = faults.iter().find(|fault| !fault.can_never_admit()) {
            return Err(InvalidPolicy::new(self.name(), *fault));
        }
        let Some(fault) = faults.first() else { return Ok(Ok(())) };
        let usable = self.leaving(share);
        let tier = usable.tiers().iter().min_by_key(|tier| tier.threshold());
        let tier = *tier.unwrap_or(&Tier::NONE);
        Ok(Err(TooLarge::new(self, cost, tier, *fault)))
    }

    /// Returns `true` for most policies and costs that break no rule. No compiler knows the zones
    /// of the calendar.
    #[inline]
    pub(crate) fn is_surely_valid(&self, cost: u32) -> bool {
        let [tier, ..] = self.tiers;
        let most = match self.state {
            _ if self.lease.is_some() => 1,
            StateKind::TokenBucket => self.written_bucket_size(tier),
            _ => tier.threshold,
        };
        self.is_valid_alone() && cost <= most
    }

    /// Validates that calls under the policy can have request ids.
    pub(crate) fn validate_request_id(&self) -> Result<(), InvalidPolicy> {
        let fault = match self.count {
            0 => Some(PolicyFault::NothingToCount { argument: "request_id" }),
            _ => rules::request_id_violation(self.algorithm(), self.counts_rejected()),
        };
        self.invalid_by(fault.or(self.block_fault("request_id")))
    }

    /// Validates that calls under the policy can wait.
    pub(crate) fn validate_wait(&self) -> Result<(), InvalidPolicy> {
        let of_calendar =
            self.is_calendar().then_some(PolicyFault::CalendarWith { argument: "max_wait" });
        self.invalid_by(of_calendar.or(self.block_fault("max_wait")))
    }

    /// Validates the policy, and that its callers can be paused. Its tiers and its flags are enough
    /// for that.
    pub(crate) fn validate_pause(&self) -> Result<(), InvalidPolicy> {
        self.validate_shape()?;
        self.validate_store_argument("pause")?;
        let is_log = self.has_window() && self.state == StateKind::SlidingWindow;
        let has_line = is_log && !self.counts_rejected();
        let fault = (!has_line).then_some(PolicyFault::PauseWithoutLine);
        self.invalid_by(fault.or(self.block_fault("pause")))
    }

    /// Validates that a call under the policy can leave a share of it.
    pub(crate) fn validate_leave(&self, waits: bool) -> Result<(), InvalidPolicy> {
        let counted = self.counts_rejected().then_some("count_rejected");
        let other = waits.then_some("max_wait").or(counted);
        self.invalid_by(
            other.map(|argument| PolicyFault::LeaveWith { argument }).or(self.block_fault("leave")),
        )
    }

    /// Returns the rule that an argument of a call breaks if the policy has a block.
    fn block_fault(&self, argument: &'static str) -> Option<PolicyFault> {
        self.flags.has(Flags::BLOCKS).then_some(PolicyFault::BlockWith { argument })
    }

    /// Returns `true` if there is one tier and nothing else, and no rule is broken.
    pub(crate) const fn is_one_tier(&self) -> bool {
        self.flags.has(Flags::ONE_TIER)
    }

    /// Returns `true` if there is one tier, and no rule is broken.
    pub(crate) const fn is_valid_alone(&self) -> bool {
        self.flags.has(Flags::VALID_ALONE)
    }

    /// Returns `true` if there are several tiers.
    pub(crate) const fn has_tiers(&self) -> bool {
        self.count > 1
    }

    /// Validates that calls under the policy can be warned of.
    pub(crate) fn validate_warning(&self, percent: u8) -> Result<(), InvalidPolicy> {
        let of_tiers = rules::warning_violation(self.tiers().len());
        self.invalid_by(of_tiers.or(rules::mark_fault(percent.into())))
    }

    fn invalid_by(&self, fault: Option<PolicyFault>) -> Result<(), InvalidPolicy> {
        fault.map_or(Ok(()), |fault| Err(InvalidPolicy::new(self.name(), fault)))
    }

    /// Validates that a call can have an argument which needs the store at each call.
    pub(crate) fn validate_store_argument(
        &self,
        argument: &'static str,
    ) -> Result<(), InvalidPolicy> {
        self.invalid_by(
            self.flags.has(Flags::LEASED).then_some(PolicyFault::LeaseWith { argument }),
        )
    }

    /// Returns the rules that the policy breaks, or calls of this cost that leave this share.
    fn faults(&self, cost: Option<u32>, share: u8) -> Vec<PolicyFault> {
        // Tiers beyond the maximum are not kept: one more, without numbers, breaks the rule of
        // their count.
        let mut tiers = [TierDraft { period: None, threshold: None }; MAX_TIERS + 1];
        for (draft, tier) in tiers.iter_mut().zip(self.tiers()) {
            *draft = TierDraft {
                period: Some(tier.micros().get()),
                threshold: Some(tier.threshold().into()),
            };
        }
        let draft = Draft {
            algorithm: self.algorithm(),
            tiers: &tiers[..usize::from(self.count).min(MAX_TIERS + 1)],
            burst: setting(self.burst.map(u64::from)),
            cost: cost.map(u64::from),
            count_rejected: self.counts_rejected(),
            concurrency: setting(self.concurrency.map(u64::from)),
            concurrency_timeout: setting(self.concurrency_timeout.map(Micros::get)),
            lease: setting(self.lease.map(Micros::get)),
            leave: Some(share.into()).filter(|share| *share > 0),
            zone: self.zone.is_some(),
            block: &self.block_drafts(),
        };
        let faults = rules::violations(&draft).into_iter().map(|(_, fault)| fault);
        faults.chain(self.calendar_fault()).collect()
    }
}

fn setting(number: Option<u64>) -> Setting {
    number.map_or(Setting::Default, |number| Setting::Explicit(Some(number)))
}

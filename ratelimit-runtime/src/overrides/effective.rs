//! The type of what overrides make of one call: a policy, an enforcement or an answer.
//! `snapshot.rs` chooses it.

use std::sync::Arc;

use super::{Enforcement, Override, candidate::Candidate};
use crate::{
    error::RateLimitError,
    policy::{LocalShare, OnStoreError, Policy},
    request::Outcome,
};

/// The policy and the enforcement of one call, after overrides.
#[derive(Clone)]
pub(crate) struct Effective<'a> {
    /// The policy as declared.
    pub(crate) written: &'a Policy,
    pub(crate) enforcement: Enforcement,
    /// None for most calls, which have the declared policy.
    pub(crate) changed: Option<Box<ChangedCall>>,
}

/// The parts in which a call differs from its declaration.
#[derive(Clone, Default)]
pub(crate) struct ChangedCall {
    /// The policy after overrides, if one changes it.
    overridden: Option<Arc<Policy>>,
    /// `true` if that policy has no tier of the declared one.
    replaces_tiers: bool,
    /// The policy that decides, if the call leaves a share of it.
    leaving: Option<Policy>,
    /// The answer of a call whose caller is shut out.
    answer: Option<RateLimitError>,
    candidate: Option<(Policy, Arc<Candidate>)>,
}

impl<'a> Effective<'a> {
    /// Returns the declared policy and enforcement, unchanged.
    pub(crate) fn declared(written: &'a Policy, enforcement: Enforcement) -> Self {
        Self { written, enforcement, changed: None }
    }

    /// Returns the policy after overrides, if one changes it, and the enforcement.
    pub(super) fn overridden(
        written: &'a Policy,
        enforcement: Enforcement,
        overridden: Option<Arc<Policy>>,
        by: Option<&Override>,
    ) -> Self {
        let replaces_tiers = by.is_some_and(|by| !by.tiers.is_empty());
        let changed = overridden.is_some().then(|| {
            Box::new(ChangedCall { overridden, replaces_tiers, ..ChangedCall::default() })
        });
        Self { written, enforcement, changed }
    }

    /// Returns the same with all numbers multiplied by a factor in thousandths. A policy that would
    /// become invalid stays; the problems of the overrides name it.
    pub(super) fn scaled(mut self, scale: Option<u32>) -> Self {
        let changes_numbers = |scale: &u32| *scale != 1_000;
        let scaled = scale.filter(changes_numbers).and_then(|it| self.whole().scaled(it).ok());
        if let Some(scaled) = scaled {
            self.changed.get_or_insert_default().overridden = Some(Arc::new(scaled));
        }
        self
    }

    /// Returns the same with the answer to calls that Redis cannot decide.
    pub(super) fn answering(mut self, on_store_error: Option<OnStoreError>) -> Self {
        if let Some(on_store_error) = on_store_error {
            let policy = self.whole().with_overridden_answer(on_store_error);
            self.changed.get_or_insert_default().overridden = Some(Arc::new(policy));
        }
        self
    }

    /// Returns the same for a call that this process has decided alone, under a share.
    pub(crate) fn shared_out(&self, share: LocalShare) -> Self {
        let mut alone = self.clone();
        let changed = alone.changed.get_or_insert_default();
        changed.overridden = self.whole().shared_out(share, 0).map(Arc::new);
        let leaving = changed.leaving.as_ref();
        changed.leaving = leaving.and_then(|policy| policy.shared_out(share, 0));
        alone
    }

    /// Returns the answer of a call that no store decides.
    pub(super) fn answered(written: &'a Policy, answer: RateLimitError) -> Self {
        let changed = ChangedCall { answer: Some(answer), ..ChangedCall::default() };
        Self { changed: Some(Box::new(changed)), ..Self::declared(written, Enforcement::On) }
    }

    /// Returns the same for a limit with a candidate, and the policy that it makes.
    pub(super) fn trying(mut self, candidate: Option<(Policy, Arc<Candidate>)>) -> Self {
        if candidate.is_some() {
            self.changed.get_or_insert_default().candidate = candidate;
        }
        self
    }

    /// Returns the candidate, and the policy that it makes.
    #[inline]
    pub(crate) fn candidate(&self) -> Option<&(Policy, Arc<Candidate>)> {
        self.changed.as_ref().and_then(|changed| changed.candidate.as_ref())
    }

    /// Returns the same for a call that leaves a share, in percent.
    pub(crate) fn leaving(mut self, share: u8) -> Self {
        let leaving = self.whole().leaving(share);
        self.changed.get_or_insert_default().leaving = Some(leaving);
        self
    }

    /// Returns the policy that decides the call.
    #[inline]
    pub(crate) fn policy(&self) -> &Policy {
        let leaving = self.changed.as_ref().and_then(|changed| changed.leaving.as_ref());
        leaving.unwrap_or_else(|| self.whole())
    }

    /// Returns the same policy without regard to the share that the call leaves.
    #[inline]
    pub(crate) fn whole(&self) -> &Policy {
        let overridden = self.changed.as_ref().and_then(|changed| changed.overridden.as_deref());
        overridden.unwrap_or(self.written)
    }

    /// Adds the share that a decided call leaves to the units that are left.
    #[inline]
    pub(crate) fn add_share(&self, outcome: &mut Outcome) {
        if let Some(leaving) = self.changed.as_ref().and_then(|changed| changed.leaving.as_ref()) {
            let quota = |policy: &Policy| policy.quota_of(policy.tier_of(outcome.tier));
            let share = quota(self.whole()).saturating_sub(quota(leaving));
            outcome.remaining = outcome.remaining.saturating_add(share);
        }
    }

    /// Returns `true` if the policy after overrides has no tier of the declared one.
    pub(crate) fn replaces_tiers(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.replaces_tiers)
    }

    /// Returns `true` if the declared policy decides, and refuses.
    #[inline]
    pub(crate) fn is_declared(&self) -> bool {
        self.changed.is_none() && self.enforcement == Enforcement::On
    }

    /// Returns the answer of a call whose caller is shut out.
    #[inline]
    pub(crate) fn answer(&self) -> Option<&RateLimitError> {
        self.changed.as_ref().and_then(|changed| changed.answer.as_ref())
    }

    /// Returns `true` if refused calls pass.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.enforcement == Enforcement::DryRun
    }

    /// Returns `true` if calls pass without being counted.
    pub(crate) fn is_off(&self) -> bool {
        self.enforcement == Enforcement::Off
    }
}

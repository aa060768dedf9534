//! The part of a policy that names windows of the calendar.

use std::time::Duration;

use ratelimit_core::{Algorithm, CalendarUnit, PolicyFault};

use super::{Policy, Span, StateKind, Tier};
use crate::{
    calendar::{self, Windows, Zone},
    time::Timestamp,
};

impl Policy {
    /// Creates a policy of at most `threshold` units in a day, a week or a month of the calendar
    /// ([`Algorithm::CalendarWindow`]), in UTC or in another [`zone`](Self::zone).
    ///
    /// The window of Redis's time decides, also if the clock of a process is up to one window off.
    /// It has one tier: several limits are [decided together](crate::Limiter::check_all). It does
    /// not go with [`max_wait`](crate::Check::max_wait), [`lease`](Self::lease) and
    /// [`count_rejected`](Self::count_rejected). An [override](crate::Overrides) changes the
    /// threshold.
    ///
    /// A [`period`](crate::Decision::period) of it is nominal: 1, 7 or 31 days. Waits are exact.
    ///
    #[cfg_attr(feature = "calendar", doc = "```")]
    #[cfg_attr(not(feature = "calendar"), doc = "```ignore")]
    /// use ratelimit_runtime::{CalendarUnit, Policy};
    ///
    /// const BILL: Policy =
    ///     Policy::calendar_window("bill", CalendarUnit::Month, 100_000).zone("Europe/Berlin");
    /// assert!(BILL.validate().is_ok());
    /// ```
    pub const fn calendar_window(name: &'static str, unit: CalendarUnit, threshold: u32) -> Self {
        let period = Duration::from_micros(unit.nominal());
        Self::new(name, Algorithm::CalendarWindow, period, threshold)
    }

    /// Sets the time zone of a [`calendar_window`](Self::calendar_window), by its name in the
    /// database of the IANA; UTC by default.
    ///
    /// The database is the newer one of the system's and that in the program. If the system's has
    /// no version, it is that in the program. The environment variable `RATELIMIT_CALENDAR` chooses
    /// one of them, by the words `system` and `bundled`. The process reads it with its first zone,
    /// and logs its version and place at `info`. From then on `Debug` of a limiter contains them.
    ///
    /// Two processes with different databases may end a month at different times. Once both have
    /// called in a month, neither admits more than the threshold in what either of them calls a
    /// month.
    pub const fn zone(mut self, zone: &'static str) -> Self {
        self.zone = Some(zone);
        self.checked()
    }

    /// Returns the time zone that [`zone`](Self::zone) has set.
    #[must_use]
    pub const fn get_zone(&self) -> Option<&'static str> {
        self.zone
    }

    /// Returns the time zone of windows of the calendar.
    pub(crate) fn zone_or_utc(&self) -> &'static str {
        self.zone.unwrap_or("UTC")
    }

    /// Returns the unit of a [`calendar_window`](Self::calendar_window).
    #[must_use]
    pub const fn calendar_unit(&self) -> Option<CalendarUnit> {
        if self.is_calendar() { CalendarUnit::of_nominal(self.tiers[0].period) } else { None }
    }

    /// Returns `true` if the windows are those of the calendar.
    pub(crate) const fn is_calendar(&self) -> bool {
        matches!(self.state, StateKind::CalendarWindow)
    }

    /// Returns the rule that the policy breaks by what only the program knows: its features, and
    /// the zones of its database.
    pub(super) fn calendar_fault(&self) -> Option<PolicyFault> {
        self.calendar_unit()?;
        #[cfg(not(feature = "calendar"))]
        return Some(PolicyFault::CalendarWithoutFeature);
        // The windows of a recorded time stay known: the zone is asked for, and none of its
        // windows.
        #[cfg(feature = "calendar")]
        {
            let unknown = self.zone.filter(|zone| calendar::database::zone(zone).is_none())?;
            Some(PolicyFault::UnknownZone { zone: unknown })
        }
    }

    /// Returns the windows of the calendar around a time in microseconds since the UNIX epoch.
    pub(crate) fn windows_at(&self, now: u64) -> Option<Windows> {
        calendar::windows(self.calendar_unit()?, self.zone, now)
    }

    /// Returns the policy in its zone whose window is the second one of these, for a store whose
    /// clock is ahead of the UNIX epoch.
    pub(crate) fn dated(
        &self,
        zone: Option<Zone>,
        [_, start, end, _]: Windows,
        ahead: u64,
    ) -> Self {
        let mut policy = Self { dated_zone: zone, ..*self };
        let at = Timestamp::new(start.wrapping_add(ahead));
        policy.tiers[0] = policy.tiers[0].dated(at, Span::new(start, end));
        policy
    }

    /// Returns the zone of a [dated](Self::dated) policy; `None` is UTC.
    pub(crate) const fn dated_zone(&self) -> Option<Zone> {
        self.dated_zone
    }

    /// Returns the period as people read it: `month (Europe/Berlin)`, or a length of time.
    pub(crate) fn period_text(&self, tier: Tier) -> String {
        match (self.calendar_unit(), self.zone) {
            (Some(unit), Some(zone)) => format!("{} ({zone})", unit.as_str()),
            (Some(unit), None) => unit.as_str().to_owned(),
            (None, _) => format!("{:?}", tier.period()),
        }
    }
}

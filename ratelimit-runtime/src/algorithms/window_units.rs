//! The units of a window in plain Rust: the same rule as `window_units.lua`.

/// The methods of [`Count`](super::per_tier::Count) for a window that counts its units from `start`
/// on.
macro_rules! window_units {
    () => {
        #[inline]
        fn has_room(&self, _: Timestamp, tier: &Tier, units: u32) -> bool {
            u64::from(self.units) + u64::from(units) <= u64::from(tier.threshold())
        }

        fn left(&self, _: Timestamp, tier: &Tier) -> u32 {
            tier.threshold().saturating_sub(self.units)
        }

        #[inline]
        fn until(&self, now: Timestamp, tier: &Tier, units: u32) -> Micros {
            if self.has_room(now, tier, units) { Micros::ZERO } else { self.lasts(now) }
        }

        #[inline]
        fn take(&mut self, _: &Tier, units: u32) -> u32 {
            self.units += units;
            units
        }

        fn lower(&mut self, _: Timestamp, charge: GivenBack, _: u32) -> u32 {
            let GivenBack { units, at, least } = charge;
            // A charge from before is not among the units of this window.
            if self.since <= at {
                self.units = self.units.saturating_sub(units).max(self.units.min(least));
            }
            units
        }

        fn raise(&mut self, units: u32) {
            self.units = self.units.saturating_add(units);
        }
    };
}

pub(super) use window_units;

//! The limits of a program as text, which a test compares with a file under review.

mod strictness;

use std::{cmp::Ordering, convert::Infallible, env, fmt, fs, io, str::FromStr};

use ratelimit_core::period;

use self::strictness::{of_property, of_tiers};
use super::{RegisteredPolicy, policies};
use crate::{
    policy::{Policy, QuotaUnit},
    time::Micros,
};

/// Compares the limits of this program with a file of the package, and panics if they differ
/// (feature `testing`).
///
/// The path is relative to the package's `Cargo.toml`. With the environment variable
/// `UPDATE_LIMITS=1` the file is written instead. Under version control, it shows each change of a
/// limit to those who review it. A failed comparison lists the limits that are stricter, looser,
/// changed otherwise, new or gone.
///
/// One integration test of a package does it. It names the library, here `shop`, without which its
/// program has no limit:
///
/// ```text
/// use shop as _;
///
/// #[test]
/// fn the_limits_are_those_under_review() {
///     ratelimit_runtime::lock!("limits.lock");
/// }
/// ```
///
/// A program without a limit panics:
///
/// ```should_panic
/// ratelimit_runtime::lock!("limits.lock");
/// ```
///
/// The limits are those of [`policies`](crate::limits::policies): a unit test has those of the
/// other unit tests too. [`LimitList`] has the form of the file. Policies that layers or the
/// program itself check are known only here, and are given: `lock!("limits.lock", PACE, SEARCH)`.
///
/// # Panics
///
/// If the limits differ, if there are none, or if the file is missing or cannot be read or written.
#[macro_export]
macro_rules! lock {
    ($path:literal $(, $policy:expr)* $(,)?) => {
        $crate::__private::assert_locked(
            ::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", $path),
            &[$($policy),*],
        )
    };
}

/// The limits of a program as text (feature `testing`), one block each: its name, and an indented
/// line for each property.
///
/// The text does not depend on the form of the source, only on the values in it. Values that come
/// with each call are expressions there. It is parsed back by [`FromStr`], which ignores empty
/// lines and comments with `#`.
///
/// ```standalone_crate
/// use ratelimit_runtime::{RateLimitError, limits::LimitList, rate_limit};
///
/// #[rate_limit(
///     name = "search",
///     period = "1h",
///     threshold = plan.searches,
///     cost = 2,
///     key = plan.user,
///     leave = "20%",
///     skip = plan.user == 0,
///     on_store_error = deny
/// )]
/// async fn search(plan: Plan) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// struct Plan {
///     user: u64,
///     searches: u32,
/// }
///
/// let text = "\
/// search
///     algorithm: sliding_window
///     tier: plan.searches per 3600s
///     key: plan.user
///     cost: 2
///     leave: 20%
///     skip: plan.user==0
///     on_store_error: deny
/// ";
/// let limits = LimitList::of_program();
/// assert_eq!(limits.to_string(), text);
/// let earlier: LimitList = text.replace("cost: 2", "cost: 1").parse()?;
/// assert_eq!(limits.changes_since(&earlier)[0].to_string(), "\
/// stricter  search
///     - cost: 1
///     + cost: 2
/// ");
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitList(Vec<LimitText>);

/// One limit: its name, and its properties, each a line `name: value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LimitText {
    name: String,
    properties: Vec<Property>,
}

/// The name and the value of a property.
type Property = (String, String);

/// The kind of a change between two lists of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The limit admits no call that it refused before.
    Stricter,
    /// The limit refuses no call that it admitted before.
    Looser,
    /// The limit admits some calls and refuses others, or counts otherwise.
    Changed,
    /// The limit is in the later list alone.
    New,
    /// The limit is in the earlier list alone.
    Gone,
}

/// A change of one limit between two lists.
///
/// Its `Display` has the kind, the name, and the lines that differ.
#[derive(Clone, Debug)]
pub struct LimitChange {
    kind: ChangeKind,
    name: String,
    removed: Vec<Property>,
    added: Vec<Property>,
}

impl LimitList {
    /// Returns the limits of all annotated functions of this program, sorted by name. Functions
    /// whose limits are alike and share a name are one.
    #[must_use]
    pub fn of_program() -> Self {
        let mut blocks: Vec<_> = policies().iter().map(LimitText::of).collect();
        blocks.sort();
        blocks.dedup();
        Self(blocks)
    }

    /// Adds policies that no function has: those of layers, and of checks by hand.
    #[must_use]
    pub fn with(mut self, policies: &[Policy]) -> Self {
        let by_hand = |policy: &Policy| LimitText::of(&RegisteredPolicy::by_hand(policy));
        self.0.extend(policies.iter().map(by_hand));
        self.0.sort();
        self
    }

    /// Returns the differences from an earlier list, sorted by name.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Vec<LimitChange> {
        let only_in = |list: &Self, other: &Self| -> Vec<LimitText> {
            list.0.iter().filter(|block| !other.0.contains(block)).cloned().collect()
        };
        let mut later = only_in(self, earlier);
        let mut changes = Vec::new();
        for before in only_in(earlier, self) {
            // Of several limits of one name, the first is compared with the first.
            let found = later.iter().position(|block| block.name == before.name);
            let kind = if found.is_some() { ChangeKind::Changed } else { ChangeKind::Gone };
            let nothing = LimitText { name: before.name.clone(), properties: Vec::new() };
            let after = found.map_or(nothing, |index| later.remove(index));
            changes.push(LimitChange::new(kind, &before, &after));
        }
        for after in later {
            let nothing = LimitText { name: after.name.clone(), properties: Vec::new() };
            changes.push(LimitChange::new(ChangeKind::New, &nothing, &after));
        }
        changes.sort_by(|one, other| one.name.cmp(&other.name));
        changes
    }
}

impl LimitText {
    fn of(limit: &RegisteredPolicy) -> Self {
        let policy = limit.declared();
        // A value that comes with each call is 0 in the policy.
        let mut expressions = limit.dynamic_args().iter();
        let mut value = |number: u64, text: String| match number {
            0 => expressions.next().map_or(text, |expression| spaced_alike(expression)),
            _ => text,
        };
        let mut properties = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            properties.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("algorithm", Some(policy.algorithm().as_str().to_owned()));
        for tier in policy.tiers() {
            let period = match policy.calendar_unit() {
                Some(_) => policy.period_text(*tier),
                None => value(tier.micros().get(), period::text(tier.micros().get())),
            };
            let threshold = value(tier.threshold().into(), tier.threshold().to_string());
            add("tier", Some(format!("{threshold} per {period}")));
        }
        add("burst", policy.get_burst().map(|burst| value(burst.into(), burst.to_string())));
        let (calls, timeout) = (policy.get_concurrency(), policy.permit_timeout().get());
        add("concurrency", calls.map(|calls| value(calls.into(), calls.to_string())));
        add("concurrency_timeout", calls.map(|_| value(timeout, period::text(timeout))));
        let lease = policy.lease_micros().map(Micros::get);
        add("lease", lease.map(|lease| value(lease, period::text(lease))));
        let blocks: Vec<_> =
            policy.block_lengths().iter().map(|it| period::text(it.get())).collect();
        add("block", policy.has_block().then(|| blocks.join(", ")));
        let unit = Some(policy.get_quota_unit()).filter(|unit| *unit != QuotaUnit::Requests);
        add("quota_unit", unit.map(|unit| unit.as_str().to_owned()));
        let key: Vec<_> = limit.key().iter().map(|part| spaced_alike(part)).collect();
        let caller = if limit.is_by_hand() { "of each check" } else { "the ambient caller" };
        add("key", Some(if key.is_empty() { caller.to_owned() } else { key.join(", ") }));
        add("cost", Some(limit.cost()).filter(|cost| *cost != "1").map(spaced_alike));
        let yes = |is_set: bool| is_set.then(|| "yes".to_owned());
        add("count_rejected", yes(policy.counts_rejected()));
        add("dry_run", yes(limit.is_dry_run()));
        let others = limit.declaration().map_or(&[][..], |declaration| declaration.others);
        for (name, value) in others {
            add(name, Some(spaced_alike(value)));
        }
        Self { name: on_its_line(limit.name()), properties }
    }

    fn values<'a>(&'a self, property: &'a str) -> impl Iterator<Item = &'a str> {
        self.properties.iter().filter(move |it| it.0 == property).map(|it| &*it.1)
    }
}

impl LimitChange {
    /// Returns a change of this kind. One that is `Changed` is stricter or looser if all its lines
    /// are.
    fn new(kind: ChangeKind, before: &LimitText, after: &LimitText) -> Self {
        let only_in = |one: &LimitText, other: &LimitText| -> Vec<Property> {
            one.properties.iter().filter(|it| !other.properties.contains(it)).cloned().collect()
        };
        let (removed, added) = (only_in(before, after), only_in(after, before));
        let mut strictness = removed.iter().chain(&added).map(|(property, _)| match &**property {
            "tier" => of_tiers(before, after),
            property => of_property(property, before, after),
        });
        let first =
            strictness.next().flatten().filter(|first| strictness.all(|it| it == Some(*first)));
        let kind = match first {
            Some(Ordering::Greater) if kind == ChangeKind::Changed => ChangeKind::Stricter,
            Some(Ordering::Less) if kind == ChangeKind::Changed => ChangeKind::Looser,
            _ => kind,
        };
        Self { kind, name: after.name.clone(), removed, added }
    }

    /// Returns the kind of the change.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// Returns the name of the limit.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns a name as the file has it: in quotes if its line would be read otherwise.
fn on_its_line(name: &str) -> String {
    let is_read_so = name.trim() == name && !name.starts_with(['#', '"']) && !name.contains('\n');
    if is_read_so { name.to_owned() } else { format!("{name:?}") }
}

/// Returns an expression with spaces only between words, and without the commas that end lists.
/// Both depend on how the source is formatted. Text in quotes is kept.
fn spaced_alike(expression: &str) -> String {
    let is_word = |at: char| at.is_alphanumeric() || at == '_';
    let mut text = String::with_capacity(expression.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut space = false;
    for at in expression.chars() {
        if !quoted && at.is_whitespace() {
            space = true;
            continue;
        }
        if !quoted && matches!(at, ')' | ']' | '}') && text.ends_with(',') {
            text.pop();
        }
        if space && is_word(at) && text.ends_with(is_word) {
            text.push(' ');
        }
        space = false;
        text.push(at);
        quoted ^= at == '"' && !escaped;
        escaped = quoted && at == '\\' && !escaped;
    }
    text
}

impl fmt::Display for LimitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LimitText { name, properties }) in self.0.iter().enumerate() {
            let line = if index > 0 { "\n" } else { "" };
            writeln!(f, "{line}{name}")?;
            properties.iter().try_for_each(|(name, value)| writeln!(f, "    {name}: {value}"))?;
        }
        Ok(())
    }
}

/// Lines that are no property are names: what was written by hand differs from each limit, and is
/// shown.
impl FromStr for LimitList {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut blocks: Vec<LimitText> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (is_indented, line) = (line.starts_with(char::is_whitespace), line.trim());
            match (blocks.last_mut(), line.split_once(": ")) {
                (Some(block), Some((name, value))) if is_indented => {
                    block.properties.push((name.to_owned(), value.to_owned()));
                }
                _ => blocks.push(LimitText { name: line.to_owned(), properties: Vec::new() }),
            }
        }
        blocks.sort();
        Ok(Self(blocks))
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for LimitChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:8}  {}", self.kind, self.name)?;
        for (mark, lines) in [('-', &self.removed), ('+', &self.added)] {
            let mut lines = lines.iter();
            lines.try_for_each(|(name, value)| writeln!(f, "    {mark} {name}: {value}"))?;
        }
        Ok(())
    }
}

/// Compares the limits of this program with the file, for [`lock!`](crate::lock).
///
/// # Panics
///
/// If they differ, if there is no limit, or if the file is missing or cannot be read or written.
#[track_caller]
pub fn assert_locked(path: &str, by_hand: &[Policy]) {
    let limits = LimitList::of_program().with(by_hand);
    assert!(!limits.0.is_empty(), "{}", super::NO_LIMIT);
    if env::var_os("UPDATE_LIMITS").is_some_and(|value| value == "1") {
        let written = fs::write(path, limits.to_string());
        return written.unwrap_or_else(|error| panic!("{path} cannot be written: {error}"));
    }
    let (earlier, missing) = match fs::read_to_string(path) {
        Ok(text) => (text, ""),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (String::new(), ", which does not exist")
        }
        Err(error) => panic!("{path} cannot be read: {error}"),
    };
    let Ok(earlier) = earlier.parse();
    let changes = limits.changes_since(&earlier);
    let text: String = changes.iter().map(ToString::to_string).collect();
    assert!(
        changes.is_empty(),
        "the limits differ from {path}{missing}:\n\n{text}\nUPDATE_LIMITS=1 writes the file\n"
    );
}

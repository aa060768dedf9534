//! Overrides in a file: reading it, and following its changes.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    Fault, OverrideError, OverrideSource, Overrides, Shared, document,
    follow::{Logged, POLL_INTERVAL, next_poll},
};

/// The maximum size of a file, in bytes: some ten thousand limits.
const LARGEST: u64 = 1 << 20;

/// The pause before a changed file is read again. A file that is half written then is not applied.
const SETTLE_INTERVAL: Duration = Duration::from_millis(200);

impl Overrides {
    /// Applies the overrides in a TOML or JSON file and watches it. A text that starts with a brace is
    /// JSON.
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
    /// ```
    ///
    /// The file is a regular one of at most 1 MiB. It is followed until the last clone of the limiter
    /// and of this handle is dropped.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the file cannot be read or is invalid. It is not followed then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn follow_file(&self, path: impl Into<PathBuf>) -> Result<(), OverrideError> {
        let mut file = OverridesFile::open(path.into())?;
        file.apply(self)?;
        tokio::spawn(file.follow(Arc::downgrade(&self.shared)));
        Ok(())
    }
}

struct OverridesFile {
    path: PathBuf,
    /// The text that was read last.
    text: String,
    /// The text that is in effect.
    applied: String,
}

impl OverridesFile {
    fn open(path: PathBuf) -> Result<Self, OverrideError> {
        let mut file = Self { path, text: String::new(), applied: String::new() };
        file.text = read(&file.path).map_err(|fault| file.at_origin(fault.into()))?;
        Ok(file)
    }

    /// Polls the file until the overrides are dropped.
    async fn follow(mut self, overrides: Weak<Shared>) {
        let (mut pause, mut logged) = (POLL_INTERVAL, Logged::default());
        while let Some(overrides) = next_poll(&overrides, pause).await {
            pause = POLL_INTERVAL;
            let path = self.path.clone();
            // A disk may be slow.
            let Ok(found) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            let applied = match found {
                Ok(text) if text != self.text => {
                    self.text = text;
                    pause = SETTLE_INTERVAL;
                    continue;
                }
                Ok(_) => self.apply(&overrides),
                Err(fault) => Err(self.at_origin(fault.into())),
            };
            match applied {
                Err(error) if logged.is_new(&error) => {
                    tracing::warn!(%error, "overrides refused; previous ones stay in effect");
                }
                Err(_) => {}
                Ok(()) => logged = Logged::default(),
            }
        }
    }

    /// Applies the text that was read last, unless it is in effect.
    fn apply(&mut self, overrides: &Overrides) -> Result<(), OverrideError> {
        if self.text != self.applied {
            let layer =
                document::parse(&self.text).map_err(|fault| self.at_origin(fault.into()))?;
            let replaced = overrides.replace(OverrideSource::File, layer);
            replaced.map_err(|error| self.at_origin(error))?;
            self.applied.clone_from(&self.text);
        }
        Ok(())
    }

    fn at_origin(&self, error: OverrideError) -> OverrideError {
        error.at(self.path.display().to_string())
    }
}

/// Reads a regular file. Opening another one, such as a pipe, may block for ever, and so may reading.
fn read(path: &Path) -> Result<String, Fault> {
    let unreadable = |error: std::io::Error| Fault::Unreadable(error.to_string());
    let is_regular = |is_file: bool| {
        is_file.then_some(()).ok_or_else(|| Fault::Unreadable("is no regular file".to_owned()))
    };
    is_regular(fs::metadata(path).map_err(unreadable)?.is_file())?;
    let file = File::open(path).map_err(unreadable)?;
    is_regular(file.metadata().map_err(unreadable)?.is_file())?;
    let mut text = String::new();
    let bytes = file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if bytes as u64 > LARGEST {
        return Err(Fault::Unreadable("is larger than 1 MiB".to_owned()));
    }
    Ok(text)
}

//! Sources outside the process that are followed by polling: how often, for how long, what is
//! logged, and text files.
//!
//! Floor 1: imports nothing of this crate. `overrides` and `web` import it.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

/// The pause between two polls. A change takes effect everywhere within a second.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// The pause before a changed file is read again. A file that is half written then is not applied.
const SETTLE_INTERVAL: Duration = Duration::from_millis(200);

/// The maximum size of a file, in bytes: some ten thousand limits or networks.
const LARGEST: u64 = 1 << 20;

/// Returns the target of a source after a pause, if it is still in use.
pub(crate) async fn next_poll<T>(target: &Weak<T>, pause: Duration) -> Option<Arc<T>> {
    tokio::time::sleep(pause).await;
    target.upgrade()
}

/// The errors that were logged, each once until the source is valid again.
#[derive(Default)]
pub(crate) struct Logged(BTreeSet<String>);

impl Logged {
    /// The number of errors that are remembered.
    const CAPACITY: usize = 64;

    /// Returns `true` if no error was logged.
    #[cfg(feature = "overrides")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the error was not logged yet, and remembers it.
    pub(crate) fn is_new(&mut self, error: &impl fmt::Display) -> bool {
        if self.0.len() == Self::CAPACITY {
            self.0.clear();
        }
        self.0.insert(error.to_string())
    }
}

/// The error of a file whose text cannot be read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UnreadableFile {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

/// Applies the text of a file, and does so again after each change until the target is dropped.
/// `report` gets the result of each poll.
///
/// A change counts once the file reads the same twice, [`SETTLE_INTERVAL`] apart. Errors of a
/// change are logged at `warn` with the message `refused`, each once until the file is valid again.
///
/// # Errors
///
/// The first error, of reading or of `apply`. The file is not followed then.
///
/// # Panics
///
/// Outside a tokio runtime.
pub(crate) fn follow_file<T, E>(
    path: PathBuf,
    target: &Arc<T>,
    refused: &'static str,
    apply: impl Fn(&Arc<T>, &str) -> Result<(), E> + Send + 'static,
    report: impl Fn(&Arc<T>, Result<(), &E>) + Send + 'static,
) -> Result<(), E>
where
    T: Send + Sync + 'static,
    E: From<UnreadableFile> + fmt::Display + 'static,
{
    let text = read(&path)?;
    apply(target, &text)?;
    let file = FollowedFile { path, applied: text.clone(), text };
    tokio::spawn(file.follow(Arc::downgrade(target), refused, apply, report));
    Ok(())
}

struct FollowedFile {
    path: PathBuf,
    /// The text that was read last.
    text: String,
    /// The text that is in effect.
    applied: String,
}

impl FollowedFile {
    /// Polls the file until the target is dropped.
    async fn follow<T, E: From<UnreadableFile> + fmt::Display>(
        mut self,
        target: Weak<T>,
        refused: &'static str,
        apply: impl Fn(&Arc<T>, &str) -> Result<(), E>,
        report: impl Fn(&Arc<T>, Result<(), &E>),
    ) {
        let (mut pause, mut logged) = (POLL_INTERVAL, Logged::default());
        while let Some(target) = next_poll(&target, pause).await {
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
                Ok(_) if self.text == self.applied => Ok(()),
                Ok(_) => apply(&target, &self.text),
                Err(unreadable) => Err(unreadable.into()),
            };
            report(&target, applied.as_ref().copied());
            match applied {
                Err(error) if logged.is_new(&error) => tracing::warn!(%error, "{refused}"),
                Err(_) => {}
                Ok(()) => {
                    logged = Logged::default();
                    self.applied.clone_from(&self.text);
                }
            }
        }
    }
}

/// Reads a regular file. Opening another one, such as a pipe, may block for ever, and so may
/// reading.
fn read(path: &Path) -> Result<String, UnreadableFile> {
    let fault = |why: String| UnreadableFile { path: path.to_owned(), why };
    let unreadable = |error: std::io::Error| fault(error.to_string());
    let is_regular =
        |is_file: bool| is_file.then_some(()).ok_or_else(|| fault("is no regular file".to_owned()));
    is_regular(fs::metadata(path).map_err(unreadable)?.is_file())?;
    let file = File::open(path).map_err(unreadable)?;
    is_regular(file.metadata().map_err(unreadable)?.is_file())?;
    let mut text = String::new();
    let bytes = file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if bytes as u64 > LARGEST {
        return Err(fault("is larger than 1 MiB".to_owned()));
    }
    Ok(text)
}

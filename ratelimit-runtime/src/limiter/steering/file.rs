//! A file of overrides: how it is read, and when what it says holds.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use super::{LOOK_AGAIN, LOOK_EVERY, Logged, next_look};
use crate::{
    limiter::Limiter,
    overrides::{Fault, OverrideError, OverrideSource, document},
};

/// The largest file, in bytes: some ten thousand limits.
const LARGEST: u64 = 1 << 20;

pub(super) struct OverridesFile {
    path: PathBuf,
    /// What it said when it was last read.
    text: String,
    /// What holds of it.
    taken: String,
}

impl OverridesFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, text: String::new(), taken: String::new() }
    }

    /// Has hold what it says now.
    pub(super) fn begin(&mut self, limiter: &Limiter) -> Result<(), OverrideError> {
        self.text = read(&self.path).map_err(|fault| self.at_origin(fault.into()))?;
        self.take(limiter)
    }

    /// Follows it until the limiter is gone.
    pub(super) async fn follow(mut self, limiter: std::sync::Weak<super::Inner>) {
        let (mut pause, mut logged) = (LOOK_EVERY, Logged::default());
        while let Some(limiter) = next_look(&limiter, pause).await {
            pause = LOOK_EVERY;
            let path = self.path.clone();
            // A disk may be slow, and what is there may be anything.
            let Ok(found) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            let found = match found {
                Ok(text) if text != self.text => {
                    self.text = text;
                    pause = LOOK_AGAIN;
                    continue;
                }
                Ok(_) => self.take(&limiter),
                Err(fault) => Err(self.at_origin(fault.into())),
            };
            match found {
                Err(error) if logged.is_new(&error) => {
                    tracing::warn!(%error, "refused overrides; those of before still hold");
                }
                Err(_) => {}
                Ok(()) => logged = Logged::default(),
            }
        }
    }

    /// Has hold what was read last.
    fn take(&mut self, limiter: &Limiter) -> Result<(), OverrideError> {
        if self.text != self.taken {
            let layer = document::read(&self.text).map_err(|fault| self.at_origin(fault.into()))?;
            let replaced = limiter.overrides().replace(OverrideSource::File, layer);
            replaced.map_err(|error| self.at_origin(error))?;
            self.taken.clone_from(&self.text);
        }
        Ok(())
    }

    fn at_origin(&self, error: OverrideError) -> OverrideError {
        error.at(self.path.display().to_string())
    }
}

/// Reads a regular file. To open another one, such as a pipe, may take for ever, and to read it, too.
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

//! A stand-in for a language model: it repeats the prompt, a word at a time. A token is a word.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// The request of a client, as far as the gateway reads it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Completion {
    pub(super) prompt: String,
    /// The most tokens of the answer.
    pub(super) max_tokens: u32,
    #[serde(default)]
    pub(super) stream: bool,
}

/// The tokens that a request took, told by the upstream at its end.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u32,
    pub(super) completion_tokens: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) usage: Usage,
}

impl Completion {
    pub(super) fn prompt_tokens(&self) -> u32 {
        u32::try_from(self.prompt.split_whitespace().count()).unwrap_or(u32::MAX)
    }

    /// Returns the most tokens that the request can take. They are reserved before it is sent.
    pub(super) fn most_tokens(&self) -> u32 {
        self.prompt_tokens().saturating_add(self.max_tokens)
    }
}

impl Usage {
    pub(super) fn total(self) -> u32 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

/// The time of a token.
const PACE: Duration = Duration::from_millis(2);

/// Returns the tokens of the answer, as they are made.
pub(super) fn tokens(request: &Completion) -> impl Stream<Item = String> + Send + use<> {
    let words: Vec<_> = request.prompt.split_whitespace().map(str::to_owned).collect();
    let most = usize::try_from(request.max_tokens).unwrap_or(usize::MAX);
    stream::iter(words).take(most).then(async |word| {
        sleep(PACE).await;
        word
    })
}

/// Returns the whole answer.
pub(super) async fn answer(request: &Completion) -> Answer {
    let words: Vec<_> = tokens(request).collect().await;
    let completion_tokens = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let usage = Usage { prompt_tokens: request.prompt_tokens(), completion_tokens };
    Answer { text: words.join(" "), usage }
}

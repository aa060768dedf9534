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

/// The tokens that a request took, reported by the upstream at its end.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "they are those of the SDKs")]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
}

/// An answer, or a chunk of one that is streamed.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    object: &'static str,
    choices: [Choice; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    text: String,
}

impl Answer {
    fn new(text: String, usage: Option<Usage>) -> Self {
        Self { object: "text_completion", choices: [Choice { index: 0, text }], usage }
    }

    /// Returns the chunk of a stream that has one token.
    pub(super) fn of_token(token: String) -> Self {
        Self::new(token, None)
    }
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

/// Returns the whole answer, and the tokens that it took.
pub(super) async fn answer(request: &Completion) -> (Answer, u32) {
    let words: Vec<_> = tokens(request).collect().await;
    let prompt_tokens = request.prompt_tokens();
    let completion_tokens = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let total_tokens = prompt_tokens.saturating_add(completion_tokens);
    let usage = Usage { prompt_tokens, completion_tokens, total_tokens };
    (Answer::new(words.join(" "), Some(usage)), total_tokens)
}

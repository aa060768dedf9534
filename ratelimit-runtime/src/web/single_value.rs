//! Headers with a single value.

/// A header that is repeated, empty, not UTF-8, or without the value that it should have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedHeader;

/// Returns the text of a header's only line, without surrounding spaces; `None` if the header is
/// missing.
///
/// # Errors
///
/// [`MalformedHeader`] if it is repeated, empty, or not UTF-8.
pub(super) fn single_value<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<&'a str>, MalformedHeader> {
    let mut lines = lines.into_iter();
    let Some(line) = lines.next() else { return Ok(None) };
    match str::from_utf8(line).map(str::trim) {
        Ok(text) if !text.is_empty() && lines.next().is_none() => Ok(Some(text)),
        _ => Err(MalformedHeader),
    }
}

//! Pages of the guide: on GitHub their links are files, in rustdoc the items and modules that these
//! describe.
//!
//! Floor 1.

/// Returns the page with its links as rustdoc resolves them: `../key/caller.rs#Caller` is
/// `crate::Caller`, and `waiting.md#lines` is `crate::guide::waiting#lines`.
pub(crate) fn for_rustdoc(page: &str) -> String {
    let mut parts = page.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("](");
        match part.split_once(')') {
            Some((target, rest)) => {
                text.push_str(&item(target).unwrap_or_else(|| target.to_owned()));
                text.push(')');
                text.push_str(rest);
            }
            None => text.push_str(part),
        }
    }
    text
}

/// Returns the path of the item that a link to a file of the crate means.
fn item(target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    if let Some((file, path)) = target.split_once(".rs#") {
        let file = file.trim_start_matches("../");
        let module = match file.split('/').next()? {
            "overrides" => "overrides::",
            "registry" if file == "registry" => "limits::",
            _ => "",
        };
        return Some(format!("crate::{module}{path}"));
    }
    let (file, section) = target.split_once(".md")?;
    match file.rsplit('/').next()? {
        "attribute" => Some(format!("macro@crate::rate_limit{section}")),
        page => Some(format!("crate::guide::{page}{section}")),
    }
}

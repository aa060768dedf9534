//! The page itself, from memory.

use std::{fmt::Write, sync::Arc};

use axum::http::header;
use axum::{
    Extension, Router,
    extract::{OriginalUri, Request, State},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{ActionError, Dashboard, access::Viewer, token};

/// The files that the page loads: path, type, text.
const FILES: [(&str, &str, &str); 19] = [
    ("/api.js", JAVASCRIPT, include_str!("page/api.js")),
    ("/candidate.js", JAVASCRIPT, include_str!("page/candidate.js")),
    ("/caller.js", JAVASCRIPT, include_str!("page/caller.js")),
    ("/confirm.js", JAVASCRIPT, include_str!("page/confirm.js")),
    ("/detail.js", JAVASCRIPT, include_str!("page/detail.js")),
    ("/elements.js", JAVASCRIPT, include_str!("page/elements.js")),
    ("/exceptions.js", JAVASCRIPT, include_str!("page/exceptions.js")),
    ("/fleet.js", JAVASCRIPT, include_str!("page/fleet.js")),
    ("/refused.js", JAVASCRIPT, include_str!("page/refused.js")),
    ("/format.js", JAVASCRIPT, include_str!("page/format.js")),
    ("/history.js", JAVASCRIPT, include_str!("page/history.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/main.js", JAVASCRIPT, include_str!("page/main.js")),
    ("/plots.js", JAVASCRIPT, include_str!("page/plots.js")),
    ("/fields.js", JAVASCRIPT, include_str!("page/fields.js")),
    ("/scope.js", JAVASCRIPT, include_str!("page/scope.js")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/uplot.css", CSS, include_str!("page/uplot/uPlot.min.css")),
    ("/uplot.js", JAVASCRIPT, include_str!("page/uplot/uPlot.iife.min.js")),
];

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("page/index.html");

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    FILES.into_iter().fold(Router::new().route("/", get(page)), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], text)))
    })
}

async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(Viewer { may_act, .. }): Extension<Viewer>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, ActionError> {
    let (parts, _) = request.into_parts();
    let session = match token::session(&parts.headers) {
        // Other tabs use it.
        Some(session) => session.to_owned(),
        None => token::new_session()?,
    };
    // A viewer needs none.
    let token = if may_act { dashboard.secret.token(&session)? } else { String::new() };
    let text = PAGE
        .replace("{{base}}", &base(uri.path()))
        .replace("{{token}}", &token)
        .replace("{{access}}", if may_act { "act" } else { "view" });
    let cookie = token::cookie(&session, &parts);
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::SET_COOKIE, cookie),
    ];
    Ok((fields, text).into_response())
}

/// Returns the base of the page's files, relative to the request's path, which may end with a
/// slash.
fn base(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let mut base = String::from("./");
    for character in last.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' | '~' | '%' => base.push(character),
            // No other character of a path may have a meaning in HTML.
            other => {
                let mut bytes = [0; 4];
                for byte in other.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(base, "%{byte:02X}");
                }
            }
        }
    }
    if !last.is_empty() {
        base.push('/');
    }
    base
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_are_found_from_either_form_of_the_path() {
        for (path, expected) in [
            ("/", "./"),
            ("/ops/limits", "./limits/"),
            ("/ops/limits/", "./"),
            ("/ops/a\"><b", "./a%22%3E%3Cb/"),
            ("/ops/%C3%A4", "./%C3%A4/"),
        ] {
            assert_eq!(base(path), expected);
        }
    }

    #[test]
    fn the_page_names_only_its_own_files() {
        let names = |text: &'static str| {
            let quoted = text.split(['"', '\'']).skip(1).step_by(2);
            quoted.filter(|it| {
                let extension = Path::new(it).extension().and_then(|it| it.to_str());
                matches!(extension, Some("js" | "css" | "svg"))
            })
        };
        let scripts = FILES.iter().filter(|(path, ..)| *path != "/uplot.js");
        let texts = scripts.map(|(_, _, text)| *text).chain([PAGE]);
        let mut count = 0;
        for name in texts.flat_map(names) {
            let path = format!("/{}", name.trim_start_matches("./"));
            assert!(FILES.iter().any(|(file, ..)| *file == path), "{name}");
            count += 1;
        }
        assert!(count >= FILES.len(), "{count}");
    }
}

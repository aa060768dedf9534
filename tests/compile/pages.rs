//! Links of the guide, which GitHub follows to files, become those of rustdoc to items.

#[path = "../../ratelimit-macros/src/page.rs"]
mod page;

#[test]
fn links_to_files_are_links_to_what_they_describe() {
    for (target, expected) in [
        ("../key/caller.rs#Caller", "crate::Caller"),
        ("../policy/settings.rs#Policy::lease", "crate::Policy::lease"),
        ("waiting.md", "crate::guide::waiting"),
        ("guide/waiting.md#lines", "crate::guide::waiting#lines"),
        ("../attribute.md#block", "macro@crate::rate_limit#block"),
        ("https://docs.rs/tokio/page.md", "https://docs.rs/tokio/page.md"),
        ("#here", "#here"),
    ] {
        let [page, expected] = [target, expected].map(|it| format!("A [link]({it}), [open]."));
        assert_eq!(page::for_rustdoc(&page), expected);
    }
    let without_end = "A [link](waiting.md";
    assert_eq!(page::for_rustdoc(without_end), without_end);
}

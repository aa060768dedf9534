//! <!--
#![doc = ratelimit_macros::page!("src/guide/README.md")]

#[cfg(test)]
mod tests;

/// Declares the pages. A page whose examples need features is rendered if they are on.
macro_rules! pages {
    ($($name:ident: $file:literal $(if $($feature:literal)+)?;)+) => {$(
        #[cfg_attr(all($($(feature = $feature),+)?), doc = ratelimit_macros::page!($file))]
        #[cfg_attr(
            not(all($($(feature = $feature),+)?)),
            doc = concat!("Rendered with the features", $($(" `", $feature, "`",)+)? ": in a clone, `cargo doc -p ratelimit-runtime --all-features`.")
        )]
        pub mod $name {}
    )+};
}

pages! {
    tutorial: "src/guide/tutorial.md" if "axum";
    choosing: "src/guide/choosing.md";
    cookbook: "src/guide/cookbook.md" if "axum" "overrides";
    callers: "src/guide/callers.md";
    layers: "src/guide/layers.md" if "actix" "axum" "tonic";
    clients: "src/guide/clients.md" if "web";
    metering: "src/guide/metering.md";
    waiting: "src/guide/waiting.md";
    testing: "src/guide/testing.md" if "testing";
    production: "src/guide/production.md";
    operating: "src/guide/operating.md";
    overrides: "src/guide/overrides.md" if "overrides";
    troubleshooting: "src/guide/troubleshooting.md";
    redis: "src/guide/redis.md";
    failures: "src/guide/failures.md";
    capacity: "src/guide/capacity.md";
    pipeline: "src/guide/pipeline.md";
    design: "src/guide/design.md";
    comparison: "src/guide/comparison.md";
    migration: "src/guide/migration.md" if "actix" "axum";
}

// Runs its examples, as those of the English README are run.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.zh-CN.md")]
mod readme_in_chinese {}

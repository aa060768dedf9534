#![no_main]
libfuzzer_sys::fuzz_target!(|text: &str| ratelimit_runtime::fuzz::told(text));

//! The examples run as their first lines say, and do what they say.

mod examples;
mod services;

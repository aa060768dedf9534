//! The page for operators shows and changes limits, and does neither for anyone else.

mod browser;
mod http;
mod strangers;

//! The page for operators shows and changes limits, and does neither for anyone else.

mod access;
mod callers;
mod keyboard;
mod limits;
mod operator;
mod page;
mod pointer;
mod samples;
mod strangers;

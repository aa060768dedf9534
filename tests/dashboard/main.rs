//! The page for operators shows and changes limits, and does neither for anyone else.

mod access;
mod bad_night;
mod bad_night_page;
mod callers;
mod candidate;
mod drill;
mod fleet;
mod keyboard;
mod levers;
mod limits;
mod lost_edits;
mod odd_limits;
mod operator;
mod page;
mod plans;
mod pointer;
mod questions;
mod samples;
mod steady;
mod strangers;
mod undo;

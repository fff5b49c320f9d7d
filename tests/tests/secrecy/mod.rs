//! Access keys stay secret: the values of write-only fields appear in no response, no log and no
//! file, and no caller can access the keys of another owner.

mod bad_input;
mod canary;
mod changing;
mod crashing;
mod creating;
mod isolation;
mod leak_check;
mod reading;
mod regressions;

//! Logins through identity providers: an honest one, hostile ones, and who a person is taken for.

mod hostile;
mod logins;
mod scene;
mod takeovers;

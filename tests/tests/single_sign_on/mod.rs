//! Logins through identity providers: an honest one, hostile ones, and the user that each person
//! gets. Exchanges of the tokens of workloads. Logins of the command line.

mod command_line;
mod hostile;
mod issuers;
mod later;
mod logins;
mod scene;
mod takeovers;
mod trials;
mod workloads;

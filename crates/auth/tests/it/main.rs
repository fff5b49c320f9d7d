//! The policy, keys and scopes: properties, and models that are compared with the code.

use aws_lc_rs as _;
use base64 as _;
use foldhash as _;
use hex as _;
use http as _;
use parking_lot as _;
use percent_encoding as _;
use rpds as _;
use rustix as _;
use zeroize as _;

mod chains;
mod logins;
mod properties;
mod random;
mod reference_model;
mod scaling;

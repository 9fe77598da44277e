//! bmoe

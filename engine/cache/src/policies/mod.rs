//! One file per policy, and the two structures that several of them are made of.

mod arc;
mod fifo;
mod heap;
mod layered;
mod lfru;
mod lfu;
mod lfu_aged;
mod list;
mod lru;
mod random;
mod s3fifo;
mod sieve;

pub use arc::AdaptiveReplacement;
pub use fifo::Fifo;
pub use layered::Layered;
pub use lfru::Lfru;
pub use lfu::Lfu;
pub use lfu_aged::LfuAged;
pub use lru::Lru;
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

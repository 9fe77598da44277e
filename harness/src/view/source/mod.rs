//! Where the world comes from.

use super::world::World;

/// Something that adds to the world.
pub trait Source: std::fmt::Debug {
    /// Takes what has come since the last time. Never waits. What can't be read is told in the world, and the rest
    /// goes on.
    fn poll(&mut self, world: &mut World);
}

/// Nothing more comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Still;

impl Source for Still {
    fn poll(&mut self, _world: &mut World) {}
}

//! The viewer: a run, a matrix or a chat in a terminal, live or replayed.
//!
//! * [`world`]: what is known of the runs, up to the playhead. Nothing in it draws.
//! * [`source`]: where that comes from: a result folder, an imported trace, a run in progress.
//! * [`screens`]: one module a screen; its state apart from its drawing.
//! * [`keys`]: every key, declared once. [`theme`]: every colour, by what it means.
//! * [`wrap`], [`figures`]: text and figures in cells.
//! * [`plain`]: the same without a screen.
//! * [`app`]: the frame around a screen, and what keys do to all of them. [`terminal`]: the terminal.

pub mod app;
pub mod figures;
pub mod keys;
pub mod plain;
pub mod screens;
pub mod source;
pub mod terminal;
pub mod theme;
pub mod world;
pub mod wrap;

pub use app::App;
pub use theme::Theme;
pub use world::World;

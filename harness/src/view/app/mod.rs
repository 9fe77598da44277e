//! The frame around the screens: which one is shown, what keys do everywhere, and the loop.

mod chrome;

use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::{Position, Rect};
use signal_hook::consts::SIGINT;

use self::chrome::Chrome;
use super::keys::{self, Action};
use super::screens::{Reply, Screen, ScreenId};
use super::source::Source;
use super::terminal::{Signals, Taken};
use super::theme::Theme;
use super::world::World;

/// The smallest terminal that has room for everything.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Why the viewer was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// By a key.
    Quit,
    /// By this signal.
    Signal(i32),
}

/// The viewer.
#[derive(Debug)]
pub struct App {
    screens: Vec<Box<dyn Screen>>,
    shown: usize,
    world: World,
    source: Box<dyn Source>,
    theme: Theme,
    /// The help is open, scrolled by so many lines.
    help: Option<u16>,
    left: bool,
    /// Where things were drawn last, for the mouse.
    chrome: Chrome,
}

impl App {
    /// A viewer of these screens, of which there is at least one; the first one is shown.
    #[must_use]
    pub fn new(
        world: World,
        source: Box<dyn Source>,
        screens: Vec<Box<dyn Screen>>,
        theme: Theme,
    ) -> Self {
        let chrome = Chrome::default();
        Self { screens, shown: 0, world, source, theme, help: None, left: false, chrome }
    }

    /// What is known.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The same, to be changed.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The screen that is shown.
    #[must_use]
    pub fn screen(&self) -> ScreenId {
        self.screens[self.shown].id()
    }

    /// What a person who leaves should know of what goes on.
    #[must_use]
    pub fn goes_on(&self) -> Option<String> {
        self.source.goes_on()
    }

    /// Whether somebody asked to leave.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.left
    }

    /// Shows a screen, if there is such a one.
    pub fn show(&mut self, id: ScreenId) {
        if let Some(at) = self.screens.iter().position(|s| s.id() == id) {
            self.shown = at;
        }
    }

    /// Time goes by: what has come is taken, and the playhead moves.
    pub fn tick(&mut self, elapsed: Duration) {
        self.source.poll(&mut self.world);
        self.world.pass(elapsed);
        self.left |= self.source.is_over();
    }

    /// Something happened at the terminal.
    pub fn on_event(&mut self, event: &Event) {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(key),
            Event::Mouse(mouse) => self.on_mouse(mouse),
            Event::Paste(text) if self.screens[self.shown].types() => {
                for letter in text.chars().filter(|c| !c.is_control() || *c == '\n') {
                    let code = match letter {
                        '\n' => KeyCode::Char(' '),
                        letter => KeyCode::Char(letter),
                    };
                    self.screens[self.shown].on_key(&KeyEvent::from(code), &mut self.world);
                }
            }
            _ => {}
        }
    }

    fn on_key(&mut self, key: &KeyEvent) {
        let id = self.screen();
        let screen = &mut self.screens[self.shown];
        if let Some(lines) = &mut self.help {
            let by = match key.code {
                KeyCode::Down | KeyCode::Char('j') => 1,
                KeyCode::Up | KeyCode::Char('k') => -1,
                KeyCode::PageDown => 10,
                KeyCode::PageUp => -10,
                _ => 0,
            };
            *lines = lines.saturating_add_signed(by);
        } else if screen.types() {
            match screen.on_key(key, &mut self.world) {
                // A letter that the screen did not want is not a command.
                Reply::Passed if matches!(key.code, KeyCode::Char(_)) => {
                    if keys::action(id, key) == Some(Action::Quit) && !key.modifiers.is_empty() {
                        self.on_interrupt();
                    }
                    return;
                }
                Reply::Passed => {}
                reply => return self.reply(reply),
            }
        }
        if let Some(action) = keys::action(id, key) {
            self.on_action(action);
        }
    }

    /// A signal, or Ctrl-C where keys are typed.
    fn on_interrupt(&mut self) {
        let reply = match self.screens[self.shown].on_interrupt() {
            Reply::Passed => Reply::Quit,
            reply => reply,
        };
        self.reply(reply);
    }

    fn reply(&mut self, reply: Reply) {
        match reply {
            Reply::Passed | Reply::Done => {}
            Reply::Show(id) => self.show(id),
            Reply::Quit => self.left = true,
        }
    }

    /// Does what a key or the mouse asks for.
    pub fn on_action(&mut self, action: Action) {
        if self.help.is_some() {
            match action {
                Action::Help | Action::Back => self.help = None,
                Action::Quit => self.left = true,
                _ => {}
            }
            return;
        }
        let reply = self.screens[self.shown].on_action(action, &mut self.world);
        if reply != Reply::Passed {
            return self.reply(reply);
        }
        let count = self.screens.len();
        let world = &mut self.world;
        match action {
            Action::Quit => self.left = true,
            Action::Help => self.help = Some(0),
            Action::Show(id) => self.show(id),
            Action::NextScreen => self.shown = (self.shown + 1) % count,
            Action::PreviousScreen => self.shown = (self.shown + count - 1) % count,
            Action::Pause => world.seek(|playhead, run| playhead.pause(run)),
            Action::StepBack => world.seek(|playhead, run| playhead.step(-1, run)),
            Action::StepOn => world.seek(|playhead, run| playhead.step(1, run)),
            Action::First => world.seek(|playhead, run| playhead.seek(0, run)),
            Action::Last => world.seek(|playhead, run| playhead.to_end(run)),
            Action::SeekBack | Action::SeekOn => world.seek(|playhead, run| {
                let twentieth = i64::try_from(run.steps().len().div_ceil(20)).unwrap_or(1).max(1);
                playhead.step(if action == Action::SeekOn { twentieth } else { -twentieth }, run);
            }),
            Action::Slower => world.playhead.change_speed(false),
            Action::Faster => world.playhead.change_speed(true),
            Action::NextRun => world.select(world.selected() + 1),
            Action::PreviousRun => world.select(world.selected().saturating_sub(1)),
            _ => {}
        }
    }

    fn on_mouse(&mut self, mouse: &MouseEvent) {
        let at = Position::new(mouse.column, mouse.row);
        if mouse.kind == MouseEventKind::Down(MouseButton::Left) && self.help.is_none() {
            if let Some(id) = self.chrome.screen_at(at) {
                return self.show(id);
            }
            if let Some(share) = self.chrome.share_at(at) {
                return self.world.seek(|playhead, run| {
                    playhead.seek((run.steps().len() as f64 * share).round() as usize, run);
                });
            }
        }
        let area = self.chrome.body;
        if !area.contains(at) || self.help.is_some() {
            return;
        }
        match self.screens[self.shown].on_mouse(mouse, area, &mut self.world) {
            Reply::Passed => match mouse.kind {
                MouseEventKind::ScrollUp => self.on_action(Action::Up),
                MouseEventKind::ScrollDown => self.on_action(Action::Down),
                _ => {}
            },
            reply => self.reply(reply),
        }
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            self.chrome = Chrome::default();
            chrome::too_small(frame, area);
            return;
        }
        // What nobody sees costs nothing.
        self.screens[self.shown].update(&self.world);
        let ids: Vec<ScreenId> = self.screens.iter().map(|s| s.id()).collect();
        let screen = &self.screens[self.shown];
        self.chrome = chrome::draw(frame, &self.world, &ids, screen.id(), self.theme);
        screen.draw(frame, self.chrome.body, &self.world, self.theme);
        if let Some(lines) = &mut self.help {
            chrome::help(frame, area, &ids, screen.id(), lines, self.theme);
        }
    }

    /// Shows it until somebody leaves, with so many frames a second at most.
    ///
    /// # Errors
    /// The terminal fails.
    pub fn run(&mut self, taken: &mut Taken, signals: &Signals, fps: u32) -> io::Result<Left> {
        let every = Duration::from_secs(1) / fps.max(1);
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            self.tick(now - last);
            last = now;
            taken.terminal.draw(|frame| self.draw(frame))?;
            let next = now + every;
            loop {
                match signals.take() {
                    Some(SIGINT) => self.on_interrupt(),
                    Some(signal) => return Ok(Left::Signal(signal)),
                    None => {}
                }
                if self.left {
                    return Ok(Left::Quit);
                }
                let wait = next.saturating_duration_since(Instant::now());
                match event::poll(wait) {
                    Ok(true) => {
                        self.on_event(&event::read()?);
                        // What is pressed is seen at once.
                        if !event::poll(Duration::ZERO)? {
                            break;
                        }
                    }
                    Ok(false) => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
}

/// A part of an area, when it is inside.
#[must_use]
pub fn row(area: Rect, index: u16) -> Rect {
    Rect { y: area.y + index.min(area.height.saturating_sub(1)), height: 1, ..area }
}

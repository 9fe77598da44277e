//! Every key of the viewer, declared once: what is pressed is looked up here, and the footer and the help are
//! drawn from here.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::screens::ScreenId;

/// What a key asks for. Most mean the same on every screen that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Leave the viewer.
    Quit,
    /// Show or hide the help.
    Help,
    /// Close what is open: help, details, an expansion.
    Back,
    /// Hold the view, or let it go on. Never the run.
    Pause,
    /// Show a screen.
    Show(ScreenId),
    /// Show the next screen, or the one before.
    NextScreen,
    /// See [`Self::NextScreen`].
    PreviousScreen,
    /// One token back.
    StepBack,
    /// One token on.
    StepOn,
    /// To the first token.
    First,
    /// To the last token; of a run in progress, stay there.
    Last,
    /// A twentieth of the run back.
    SeekBack,
    /// A twentieth of the run on.
    SeekOn,
    /// Play at half the speed.
    Slower,
    /// Play at twice the speed.
    Faster,
    /// The next run of the folder, or the one before.
    NextRun,
    /// See [`Self::NextRun`].
    PreviousRun,
    /// The cursor up.
    Up,
    /// The cursor down.
    Down,
    /// The cursor left.
    Left,
    /// The cursor right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Open what is under the cursor.
    Open,
    /// Another way to count or to align (the screen says which).
    Mode,
    /// Expand one thing, or shrink it.
    Expand,
    /// Another meaning of the dots.
    Dots,
    /// Send what is typed.
    Send,
    /// Another first thing to compare.
    PickA,
    /// Another second thing to compare.
    PickB,
}

/// Where a key has its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On every screen that isn't typed into.
    Every,
    /// On these.
    Screens(&'static [ScreenId]),
}

/// A key, or several with the same meaning.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// What is pressed.
    pub presses: &'static [KeyCode],
    /// What it is called.
    pub label: &'static str,
    /// A word for the footer; empty = only in the help.
    pub footer: &'static str,
    /// A sentence for the help.
    pub help: &'static str,
    /// What it asks for.
    pub action: Action,
    /// Where.
    pub on: On,
}

const fn key(
    presses: &'static [KeyCode],
    label: &'static str,
    footer: &'static str,
    help: &'static str,
    action: Action,
    on: On,
) -> Key {
    Key { presses, label, footer, help, action, on }
}

use KeyCode::{BackTab, Char, End, Enter, Esc, Home, Tab};

/// Screens that show one or several runs up to the playhead.
const PLAYED: On = On::Screens(&[ScreenId::Run, ScreenId::Experts, ScreenId::Compare]);
/// Those of them on which arrows step from token to token.
const STEPPED: On = On::Screens(&[ScreenId::Run, ScreenId::Compare]);
/// Screens whose cursor goes to an end.
const ENDS: On = On::Screens(&[ScreenId::Matrix]);
/// Screens with a cursor.
const CURSOR: On = On::Screens(&[ScreenId::Matrix, ScreenId::Experts]);
const CHAT: On = On::Screens(&[ScreenId::Chat]);
const COMPARE: On = On::Screens(&[ScreenId::Compare]);
const EXPERTS: On = On::Screens(&[ScreenId::Experts]);
const MATRIX: On = On::Screens(&[ScreenId::Matrix]);

/// All keys. Of two with the same press the first that applies counts.
pub const KEYS: &[Key] = &[
    key(
        &[Char('q')],
        "q",
        "quit",
        "leave; a run that goes on is not touched",
        Action::Quit,
        On::Every,
    ),
    key(&[Char('?')], "?", "help", "show or hide this help", Action::Help, On::Every),
    key(&[Esc], "esc", "", "close what is open", Action::Back, On::Every),
    key(
        &[Char(' ')],
        "space",
        "pause",
        "hold the view or let it go on; never the run",
        Action::Pause,
        On::Every,
    ),
    key(&[Tab], "tab", "", "the next screen", Action::NextScreen, On::Every),
    key(&[BackTab], "shift-tab", "", "the screen before", Action::PreviousScreen, On::Every),
    key(&[Char('1')], "1", "", "the run", Action::Show(ScreenId::Run), On::Every),
    key(&[Char('2')], "2", "", "the matrix", Action::Show(ScreenId::Matrix), On::Every),
    key(&[Char('3')], "3", "", "the experts", Action::Show(ScreenId::Experts), On::Every),
    key(&[Char('4')], "4", "", "two runs side by side", Action::Show(ScreenId::Compare), On::Every),
    key(&[Char('5')], "5", "", "the chat", Action::Show(ScreenId::Chat), On::Every),
    key(&[Enter], "enter", "send", "send the message, or do the command", Action::Send, CHAT),
    key(
        &[Esc],
        "esc",
        "end answer",
        "end the answer (so does ctrl-c; twice, it leaves)",
        Action::Back,
        CHAT,
    ),
    key(&[Tab], "tab", "screens", "the next screen", Action::NextScreen, CHAT),
    key(&[BackTab], "shift-tab", "", "the screen before", Action::PreviousScreen, CHAT),
    key(&[KeyCode::F(1)], "f1", "help", "show or hide this help", Action::Help, CHAT),
    key(&[KeyCode::PageUp], "page up", "earlier", "earlier lines", Action::PageUp, CHAT),
    key(&[KeyCode::PageDown], "page down", "", "later lines", Action::PageDown, CHAT),
    key(&[Char('a')], "a", "run A", "compare another first run, A", Action::PickA, COMPARE),
    key(&[Char('b')], "b", "run B", "compare another second run, B", Action::PickB, COMPARE),
    key(
        &[Char('m')],
        "m",
        "mean",
        "means of all tokens, of the last 8, or the token itself",
        Action::Mode,
        COMPARE,
    ),
    key(&[KeyCode::Up, Char('k')], "↑ k", "", "the cursor up", Action::Up, CURSOR),
    key(&[KeyCode::Down, Char('j')], "↓ j", "move", "the cursor down", Action::Down, CURSOR),
    key(&[KeyCode::PageUp], "page up", "", "a page up", Action::PageUp, CURSOR),
    key(&[KeyCode::PageDown], "page down", "", "a page down", Action::PageDown, CURSOR),
    key(
        &[Enter],
        "enter",
        "details",
        "the attempts of the cell, with their reasons",
        Action::Open,
        MATRIX,
    ),
    key(
        &[KeyCode::Left, Char('h'), Char(',')],
        "← h ,",
        "step",
        "one token back",
        Action::StepBack,
        STEPPED,
    ),
    key(
        &[KeyCode::Right, Char('l'), Char('.')],
        "→ l .",
        "",
        "one token on",
        Action::StepOn,
        STEPPED,
    ),
    key(&[KeyCode::Left, Char('h')], "← h", "", "the cursor left", Action::Left, EXPERTS),
    key(&[KeyCode::Right, Char('l')], "→ l", "", "the cursor right", Action::Right, EXPERTS),
    key(
        &[Enter],
        "enter",
        "zoom",
        "a letter for each expert, scrolled; or back to all of them",
        Action::Open,
        EXPERTS,
    ),
    key(
        &[Char('e')],
        "e",
        "layer",
        "the cursor's layer, token by token; ← → change it",
        Action::Expand,
        EXPERTS,
    ),
    key(
        &[Char('m')],
        "m",
        "counting",
        "count uses in all tokens, the last 64, the last 8, or decayed",
        Action::Mode,
        EXPERTS,
    ),
    key(&[Char('v')], "v", "", "dots mean: used, or in memory", Action::Dots, EXPERTS),
    key(&[Char(',')], ",", "", "one token back", Action::StepBack, EXPERTS),
    key(&[Char('.')], ".", "step", "one token on", Action::StepOn, EXPERTS),
    key(&[Char('[')], "[", "", "a twentieth of the run back", Action::SeekBack, PLAYED),
    key(&[Char(']')], "]", "seek", "a twentieth of the run on", Action::SeekOn, PLAYED),
    key(&[Home, Char('g')], "home g", "", "to the first token", Action::First, PLAYED),
    key(
        &[End, Char('G')],
        "end G",
        "end",
        "to the last token; of a run in progress, stay there",
        Action::Last,
        PLAYED,
    ),
    key(&[Char('-')], "-", "", "play at half the speed", Action::Slower, PLAYED),
    key(&[Char('+'), Char('=')], "+", "speed", "play at twice the speed", Action::Faster, PLAYED),
    key(&[Char('n')], "n", "run", "the next run", Action::NextRun, PLAYED),
    key(&[Char('p'), Char('N')], "p", "", "the run before", Action::PreviousRun, PLAYED),
    key(&[Home, Char('g')], "home g", "", "to the first cell", Action::First, ENDS),
    key(&[End, Char('G')], "end G", "", "to the last cell", Action::Last, ENDS),
];

impl Key {
    /// Whether it has its meaning on a screen.
    #[must_use]
    pub fn applies(&self, screen: ScreenId) -> bool {
        match self.on {
            On::Every => !screen.is_typed(),
            On::Screens(screens) => screens.contains(&screen),
        }
    }
}

/// The keys of a screen, in the order of the declaration.
pub fn of(screen: ScreenId) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.applies(screen))
}

/// What a press asks for on a screen. Ctrl-C leaves everywhere and is in no table.
#[must_use]
pub fn action(screen: ScreenId, press: &KeyEvent) -> Option<Action> {
    if press.modifiers.contains(KeyModifiers::CONTROL) {
        return (press.code == Char('c')).then_some(Action::Quit);
    }
    of(screen).find(|key| key.presses.contains(&press.code)).map(|key| key.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_press_means_what_the_screen_says() {
        let on = |screen, code| action(screen, &KeyEvent::from(code));
        assert_eq!(on(ScreenId::Run, KeyCode::Left), Some(Action::StepBack));
        assert_eq!(on(ScreenId::Matrix, KeyCode::Left), None);
        assert_eq!(on(ScreenId::Matrix, Enter), Some(Action::Open));
        assert_eq!(on(ScreenId::Run, Char('z')), None);
        let ctrl_c = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(ScreenId::Run, &ctrl_c), Some(Action::Quit));
    }

    #[test]
    fn every_key_is_explained_and_none_is_hidden_by_another() {
        for screen in ScreenId::ALL {
            let mut seen = Vec::new();
            for key in of(screen) {
                assert!(!key.label.is_empty() && !key.help.is_empty());
                // An earlier key may take some presses of a later one, never all.
                assert!(key.presses.iter().any(|p| !seen.contains(p)), "{screen:?}: {}", key.label);
                seen.extend_from_slice(key.presses);
            }
        }
    }
}

//! How every unit of a run stands, as a grid of cells: one unit a cell, or where there are more units than
//! cells an even share of them.
//!
//! A cell shows the least settled of its units, so that nothing that is open or went wrong is hidden
//! behind what went well. Each state has a sign of its own; colour only repeats what the sign says.

use std::fmt::Write as _;

use operator::fact::Status;

/// Most lines of the grid.
const LINES_MAX: usize = 6;
/// Fewest and most columns.
const COLUMNS: (usize, usize) = (20, 100);

/// How a unit stands, from the least settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Errored,
    Cancelled,
    Open,
    Abstained,
    Decided,
    Excluded,
}

impl State {
    fn of(status: Status) -> Self {
        match status {
            Status::Decided => Self::Decided,
            Status::Abstained => Self::Abstained,
            Status::Errored => Self::Errored,
            Status::Cancelled | Status::NotRun => Self::Cancelled,
            Status::Excluded => Self::Excluded,
        }
    }

    const fn sign(self) -> char {
        match self {
            Self::Errored => 'x',
            Self::Cancelled => '-',
            Self::Open => ' ',
            Self::Abstained => '?',
            Self::Decided => '#',
            Self::Excluded => '.',
        }
    }

    /// Its colour as an ANSI code.
    const fn colour(self) -> &'static str {
        match self {
            Self::Errored => "31",
            Self::Cancelled => "35",
            Self::Open => "0",
            Self::Abstained => "33",
            Self::Decided => "32",
            Self::Excluded => "90",
        }
    }
}

/// What the signs mean, for the line below the grid.
pub const LEGEND: &str = "# decided  ? abstained  x errored  - stopped  . left out";

/// The units of a run.
#[derive(Debug)]
pub struct Grid {
    units: Vec<State>,
    columns: usize,
    coloured: bool,
}

impl Grid {
    /// A grid of so many units, none of them settled, for a terminal of so many columns.
    pub fn new(units: usize, columns: usize, coloured: bool) -> Self {
        Self {
            units: vec![State::Open; units],
            columns: columns.saturating_sub(4).clamp(COLUMNS.0, COLUMNS.1),
            coloured,
        }
    }

    /// Notes how a unit ended; a place beyond the grid is left out.
    pub fn settle(&mut self, place: usize, status: Status) {
        if let Some(unit) = self.units.get_mut(place) {
            *unit = State::of(status);
        }
    }

    /// The lines, each indented by two.
    pub fn draw(&self) -> String {
        let cells = self.cells();
        let mut out = String::new();
        for line in cells.chunks(self.columns) {
            out.push_str("  ");
            for run in line.chunk_by(|a, b| a == b) {
                let state = run[0];
                let signs: String = run.iter().map(|state| state.sign()).collect();
                if self.coloured && state != State::Open {
                    let _ = write!(out, "\u{1b}[{}m{signs}\u{1b}[0m", state.colour());
                } else {
                    out.push_str(&signs);
                }
            }
            out.push('\n');
        }
        out
    }

    /// One state per cell: the least settled of its units.
    fn cells(&self) -> Vec<State> {
        let count = self.units.len().min(self.columns * LINES_MAX);
        let bound = |cell: usize| cell * self.units.len() / count;
        (0..count)
            .filter_map(|cell| self.units[bound(cell)..bound(cell + 1)].iter().min())
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_a_cell_with_the_sign_of_its_state() {
        let mut grid = Grid::new(6, 24, false);
        for (place, status) in [
            (0, Status::Decided),
            (1, Status::Abstained),
            (2, Status::Errored),
            (3, Status::NotRun),
            (4, Status::Excluded),
            (99, Status::Decided),
        ] {
            grid.settle(place, status);
        }
        assert_eq!(grid.draw(), "  #?x-. \n");
    }

    #[test]
    fn a_cell_of_several_units_hides_neither_what_is_open_nor_what_went_wrong() {
        let columns = 24;
        let cells = (columns - 4) * LINES_MAX;
        let mut grid = Grid::new(cells * 2, columns, false);
        (0..cells * 2).for_each(|place| grid.settle(place, Status::Decided));
        grid.settle(1, Status::Errored);
        grid.units[2] = State::Open;
        let drawn = grid.draw();
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), LINES_MAX);
        assert!(lines[0].starts_with("  x ##"), "{}", lines[0]);
        assert!(lines.iter().all(|line| line.chars().count() == columns - 2));
    }

    #[test]
    fn every_unit_is_in_exactly_one_cell_whatever_their_number() {
        for units in [1, 19, 20, 119, 120, 121, 1_000, 99_999] {
            let grid = Grid::new(units, 24, false);
            let cells = grid.cells().len();
            assert_eq!(cells, units.min(20 * LINES_MAX));
            let mut marked = Grid::new(units, 24, false);
            (0..units).for_each(|place| marked.settle(place, Status::Decided));
            assert!(marked.cells().iter().all(|state| *state == State::Decided));
        }
        assert_eq!(Grid::new(0, 24, false).draw(), "");
    }

    #[test]
    fn colour_repeats_the_sign_and_can_be_left_out() {
        let mut grid = Grid::new(2, 24, true);
        grid.settle(0, Status::Errored);
        assert_eq!(grid.draw(), "  \u{1b}[31mx\u{1b}[0m \n");
    }
}

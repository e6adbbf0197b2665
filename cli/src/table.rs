//! Aligned text tables and quantities for people.

/// Rows of cells, printed with each column as wide as its widest cell.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these headings; a heading that starts with `>` aligns its column to the right.
    pub fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|h| h.starts_with('>')).collect();
        let first = headings
            .iter()
            .map(|h| h.trim_start_matches('>').to_owned())
            .collect();
        Table {
            rows: vec![first],
            right,
        }
    }

    /// Adds a row; it has a cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, each led by `indent` and without blanks at its end.
    pub fn render(&self, indent: &str) -> String {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(indent);
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                if line.len() > indent.len() {
                    line.push_str("  ");
                }
                line.push_str(&if *right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Bytes with a decimal unit and three or four digits: "812 B", "1.50 kB", "23.4 GB".
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    match unit {
        "B" => format!("{count} B"),
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">N", "WHY"]);
        table.row(vec!["a".into(), "1".into(), "x".into()]);
        table.row(vec!["käse".into(), "1000".into(), String::new()]);
        assert_eq!(
            table.render("  "),
            "  NAME     N  WHY\n  a        1  x\n  käse  1000\n"
        );
    }

    #[test]
    fn quantities_keep_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_999, "10.0 kB"),
            (23_400_000_000, "23.4 GB"),
            (999_600, "1.00 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}

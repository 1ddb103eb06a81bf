//! Teams behind walls: everyday work, escapes, and walls that a machine lacks.

mod lacking;
mod teams;

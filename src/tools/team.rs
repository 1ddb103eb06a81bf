//! The tools by which agents work together, and [`TeamOps`], by which they reach processes.

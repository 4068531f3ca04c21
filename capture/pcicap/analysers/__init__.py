"""Logic analysers behind one small interface, `base.Analyser`."""

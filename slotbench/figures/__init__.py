"""Figures of what models make of clips: painted images, labelled sheets, charts, and videos as uint8 arrays."""

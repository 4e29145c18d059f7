#pragma once
// Every elementwise operation: its value and its derivative, side by side, for every backend.

"use strict";
const trees = [];  // a study draws none; page.js lays them out anew where there are any
later(drawNext);

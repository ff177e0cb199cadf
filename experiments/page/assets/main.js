startTheme();
startFilters();
startFigures();
startRecords();
startPanel();
